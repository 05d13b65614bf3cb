-- Takes over threads. Until the import ends `mvt:` leads from the hash by which other records name a thread to the name it goes by.
for _ = 1, number() do
  local hash, peer, channel, last, text, direction, unread, cut, read_to =
    take(), take(), take(), take(), maybe(), take(), take(), maybe(), maybe()
  local row = key('t', peer)
  redis.call('HSET', key('mvt'), hash, peer)
  redis.call('HSET', row, 'channel', channel, 'last', last, 'direction', direction)
  if text then redis.call('HSET', row, 'text', text) end
  if unread ~= '0' then redis.call('HSET', row, 'unread', unread) end
  if cut then redis.call('HSET', row, 'cut', cut) end
  if read_to then redis.call('HSET', row, 'read_to', read_to) end
  redis.call('ZADD', key('ts'), last, peer)
end
return 'D'
