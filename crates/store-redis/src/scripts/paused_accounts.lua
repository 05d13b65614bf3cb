-- The channels in which this account rests.
local told, paused = {}, redis.call('HGETALL', key('paused'))
for n = 1, #paused, 2 do
  local of = cmsgpack.unpack(paused[n + 1])
  told[#told + 1] = { paused[n], of[1], of[2] }
end
return told
