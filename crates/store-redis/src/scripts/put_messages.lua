-- Takes over messages, as if all had left the outbox. Answers `O` when a thread is not there.
local function put()
  local seq, hash, channel, created, peer, request_id = take(), take(), take(), take(), take(), take()
  local fingerprint, text, payload, priority, reply_to = take(), maybe(), take(), take(), maybe()
  local provider_id, why, past, thread = maybe(), maybe(), maybe(), redis.call('HGET', key('mvt'), hash)
  if not thread then return false end
  local row = key('m', seq)
  redis.call('HSET', row, 'channel', channel, 'peer', peer, 'request_id', request_id, 'fingerprint', fingerprint, 'payload', payload,
    'priority', priority, 'created', created, 'thread', thread, 'home', lane_of(channel, known(peer) or thread))
  if text then redis.call('HSET', row, 'text', text) end
  if reply_to then redis.call('HSET', row, 'reply_to', reply_to) end
  if provider_id then redis.call('HSET', row, 'provider_id', provider_id) end
  if why then redis.call('HSET', row, 'why', why) end
  if past then redis.call('HSET', row, 'past', past) end
  for _ = 1, number() do redis.call('HSET', row, 's' .. take(), take()) end
  redis.call('HSET', key('rq'), request_id, seq)
  redis.call('ZADD', key('te', thread), score(seq), 'm' .. seq)
  redis.call('ZADD', key('mc', channel), created, seq)
  return true
end

for _ = 1, number() do
  if not put() then return 'O' end
end
return 'D'
