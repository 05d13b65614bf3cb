-- What hangs on the events of a channel: copies (`C`), answers (`A`) or ended attempts at their items (`T`).
local what, line = take(), key('ev', take())

local function attempts_at(event, seq)
  -- An item is told of with its first event, whose number it has.
  local items = redis.call('LRANGE', key('rp', seq), 0, -1)
  if event[3] and tostring(event[3]) == seq then table.insert(items, 1, seq) end
  local told = {}
  for _, item in ipairs(items) do
    for _, row in ipairs(redis.call('LRANGE', key('at', item), 0, -1)) do told[#told + 1] = { item, unpack(cmsgpack.unpack(row)) } end
  end
  return told[1] and told
end

return page(line, function(seq)
  local event = cmsgpack.unpack(redis.call('GET', key('e', seq)))
  if what == 'T' then
    local attempts = attempts_at(event, seq)
    return attempts and { seq, attempts }
  end
  if what == 'C' then
    local of = redis.call('HMGET', key('cp', seq), 'copies', 'conflicts', 'last', 'kept')
    return of[1] and { seq, event[1], of[1], of[2], of[3], of[4] or '' }
  end
  local of = event[3] and redis.call('HMGET', key('an', event[3]), 'status', 'content_type', 'body')
  if of and of[1] then return { seq, unpack(of) }, #of[3] end
end)
