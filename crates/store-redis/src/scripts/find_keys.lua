-- Which of these keys were moved here and are still held: for each its event, when, and its fingerprint, or nothing.
local told = {}
for n = 1, number() do
  local won = redis.call('GET', key('k', take()))
  won = won and cmsgpack.unpack(won)
  told[n] = won and won[4] > now and { won[1], won[2], won[3] }
end
return told
