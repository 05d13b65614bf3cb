-- Threads with all their names.
return page(key('ts'), function(peer)
  local of = redis.call('HMGET', key('t', peer), 'channel', 'last', 'text', 'direction', 'unread', 'cut', 'read_to')
  return { peer, of[1], of[2], of[3], of[4], of[5], of[6], of[7], redis.call('SMEMBERS', key('al', peer)) }
end)
