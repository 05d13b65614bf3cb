-- Removes webhooks and ended messages of one channel of this account after their retention. Answers how many events, and whether there may
-- be more. Of a thread that loses something, only what was said after that is shown from then on.
local channel, keep, most = take(), number(), number()

local function forget_entry(thread, entry, seq)
  redis.call('ZREM', key('te', thread), entry)
  local cut = redis.call('HGET', key('t', thread), 'cut')
  if not cut or is_below(cut, seq) then redis.call('HSET', key('t', thread), 'cut', seq) end
end

local function forget_event(seq)
  local event = cmsgpack.unpack(redis.call('GET', key('e', seq)))
  for _, item in ipairs(redis.call('LRANGE', key('rp', seq), 0, -1)) do redis.call('DEL', key('at', item)) end
  if event[3] then redis.call('DEL', key('at', event[3]), key('an', event[3])) end
  redis.call('DEL', key('e', seq), key('cp', seq), key('rp', seq))
  redis.call('ZREM', key('ev', channel), seq)
  if event[12] then forget_entry(event[12], 'e' .. seq, seq) end
end

local function forget_message(seq)
  local row = key('m', seq)
  local of = redis.call('HMGET', row, 'request_id', 'thread', 'provider_id', 'names', 'past')
  local names = of[4] and cmsgpack.unpack(of[4]) or {}
  for _, round in ipairs(of[5] and cjson.decode(of[5]).rounds or {}) do names[#names + 1] = round.provider_id end
  names[#names + 1] = of[3] or nil
  for _, name in ipairs(names) do
    if redis.call('HGET', key('pid'), name) == seq then redis.call('HDEL', key('pid'), name) end
  end
  redis.call('HDEL', key('rq'), of[1])
  redis.call('DEL', row, key('mt', seq))
  redis.call('ZREM', key('mc', channel), seq)
  forget_entry(of[2], 'm' .. seq, seq)
end

local events = 0
local webhooks = redis.call('ZRANGEBYSCORE', key('wc', channel), '-inf', now - keep, 'LIMIT', 0, most)
for _, webhook in ipairs(webhooks) do
  if events >= most then break end
  for _, seq in ipairs(split(redis.call('HGET', key('w', webhook), 'events'))) do
    forget_event(seq)
    events = events + 1
  end
  redis.call('DEL', key('w', webhook))
  redis.call('ZREM', key('wc', channel), webhook)
end
local messages = redis.call('ZRANGEBYSCORE', key('mc', channel), '-inf', now - keep, 'LIMIT', 0, most)
for _, seq in ipairs(messages) do forget_message(seq) end
return { events, (events >= most or #webhooks == most or #messages == most) and 1 or 0 }
