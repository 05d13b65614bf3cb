-- Adds suppressed copies to the counts of events.
for _ = 1, number() do
  local seq, at_s, copies, conflicts, last, kept = take(), number(), take(), take(), number(), take()
  local event = redis.call('GET', key('e', seq))
  if event and second(cmsgpack.unpack(event)[1]) == at_s then
    local row = key('cp', seq)
    redis.call('HINCRBY', row, 'copies', copies)
    redis.call('HINCRBY', row, 'conflicts', conflicts)
    if kept ~= '' then redis.call('HSETNX', row, 'kept', kept) end
    local known = redis.call('HGET', row, 'last')
    if not known or tonumber(known) < last then redis.call('HSET', row, 'last', last) end
  end
end
return 1
