-- Writes down that an item is a replay of an event: `rp:` are these items, oldest first.
local function is_replay(event, seq)
  local known = redis.call('LRANGE', key('rp', event), 0, -1)
  for _, item in ipairs(known) do
    if item == seq then return end
    if is_below(seq, item) then return redis.call('LINSERT', key('rp', event), 'BEFORE', item, seq) end
  end
  redis.call('RPUSH', key('rp', event), seq)
end
