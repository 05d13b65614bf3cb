-- Makes one lane of those that layout 1 had for each name of a person. Looks at some names; answers where to go on, 0 at the end.
local channel, cursor = take(), take()
local page = redis.call('HSCAN', key('nm'), cursor, 'COUNT', 200)
for n = 1, #page[2], 2 do
  local name = page[2][n]
  local thread = known(name)
  if thread ~= name then
    join_names(channel, name, thread)
    join_names_out(channel, name, thread)
  end
end
return tonumber(page[1])
