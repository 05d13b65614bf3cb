-- Ends the work on a leased item: `D` delivered, `R` retry, `P` parked, `H` handed back. Answers `D` done, `L` lost, `B` no room for replies.
local seq, fence, outcome = take(), take(), take()

local function keep_answer()
  local status, content_type, body = maybe(), maybe(), maybe()
  -- A replay answers nobody.
  if not status or redis.call('HGET', key('i', seq), 'replay') then return end
  redis.call('HSET', key('an', seq), 'status', status, 'body', body)
  if content_type then redis.call('HSET', key('an', seq), 'content_type', content_type) end
end

local function deliver(lane, channel, lease)
  log_attempt(seq, lease, 'delivered', take())
  keep_answer()
  for _ = 1, number() do submit(take_message()) end
  local webhook = redis.call('HGET', key('i', seq), 'webhook')
  quit_lane(lane, channel, seq, 'D')
  redis.call('DEL', key('i', seq))
  if redis.call('HINCRBY', key('w', webhook), 'open', -1) == 0 then
    redis.call('ZADD', key('wc', channel), redis.call('HGET', key('w', webhook), 'received'), webhook)
  end
end

local function finish(lane, channel, lease)
  redis.call('DEL', key('l', lane))
  redis.call('SREM', key('held', channel), lane)
  local item = key('i', seq)
  if outcome == 'D' then
    deliver(lane, channel, lease)
  elseif outcome == 'P' then
    local why = take()
    log_attempt(seq, lease, 'parked', why)
    redis.call('HSET', item, 'why', why)
    quit_lane(lane, channel, seq, 'P')
    redis.call('ZADD', key('park', channel), score(seq), seq)
  elseif outcome == 'R' then
    local wait, why = number(), take()
    log_attempt(seq, lease, 'retry', why)
    redis.call('HSET', item, 'why', why, 'due', now + wait)
    redis.call('HINCRBY', item, 'failures', 1)
  else
    local wait, called = number(), maybe()
    redis.call('HSET', item, 'due', now + wait)
    if called then
      log_attempt(seq, lease, 'handed back', called)
      redis.call('HSET', item, 'why', called)
    else
      redis.call('HINCRBY', item, 'attempt', -1)
    end
  end
  enter_line(lane, channel)
end

return once(function()
  local of = redis.call('HMGET', key('i', seq), 'lane', 'channel')
  local lease = of[1] and lease_of('l', of[1])
  if not lease or lease.fence ~= fence or lease.held ~= seq then return 'L', true end
  local most, replies = number(), number()
  for _ = 1, replies do
    if is_full(take(), most) then return 'B', true end
  end
  finish(of[1], of[2], lease)
  announce()
  return 'D'
end)
