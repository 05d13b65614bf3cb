-- One event with all that its story is made of, or nothing.
local seq = take()
local event = redis.call('GET', key('e', seq))
if not event then return false end
event = cmsgpack.unpack(event)
local items = redis.call('LRANGE', key('rp', seq), 0, -1)
if event[3] then table.insert(items, 1, event[3]) end
local attempts, open = {}, {}
for _, item in ipairs(items) do
  for _, row in ipairs(redis.call('LRANGE', key('at', item), 0, -1)) do
    attempts[#attempts + 1] = { item, unpack(cmsgpack.unpack(row)) }
  end
  if redis.call('EXISTS', key('i', item)) == 1 then open[#open + 1] = tell_item(item) end
end
local copies = redis.call('HMGET', key('cp', seq), 'copies', 'conflicts', 'last', 'kept')
local webhook = redis.call('HMGET', key('w', event[2]), 'headers', 'body')
return { tell_event(seq, event), webhook[1], webhook[2], copies, attempts, open }
