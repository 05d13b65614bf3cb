-- Takes over events, those that carry the body of their webhook before the others of it. Answers `O` when a thread is not there.
local function keep_webhook(webhook, channel, received)
  local headers, body, total = take(), take(), take()
  redis.call('HSET', key('w', webhook), 'headers', headers, 'body', body, 'total', total, 'channel', channel, 'received', received, 'open', 0)
  redis.call('ZADD', key('wc', channel), received, webhook)
end

local function put()
  local seq, webhook, item, received, channel, kind, id = take(), take(), maybe(), number(), take(), take(), take()
  local peer, echo, at_ms, text, index = maybe(), take() == '1', maybe_number(), maybe(), number()
  local hash, part, waits, carries = maybe(), take() == '1', take() == '1', take() == '1'
  if carries then keep_webhook(webhook, channel, received) end
  local events = redis.call('HGET', key('w', webhook), 'events')
  redis.call('HSET', key('w', webhook), 'events', events and events .. ',' .. seq or seq)
  local thread = hash and redis.call('HGET', key('mvt'), hash)
  if hash and not thread then return false end
  if thread then redis.call('ZADD', key('te', thread), score(seq), 'e' .. seq) end
  local row = { received, webhook, item, channel, kind, id, peer, echo, at_ms, text, index, thread, part, waits }
  redis.call('SET', key('e', seq), cmsgpack.pack(row))
  redis.call('ZADD', key('ev', channel), score(seq), seq)
  return true
end

return once(function()
  for _ = 1, number() do
    if not put() then return 'O', true end
  end
  return 'D'
end)
