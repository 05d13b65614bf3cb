-- Ends the work on a leased item: `D` delivered, `R` retry, `P` parked, `H` handed back. Answers `D` done, `L` lost, `K` parked with its
-- replies, because there is no room for them.
local seq, fence, outcome = take(), take(), take()

local function keep_answer()
  local status, content_type, body = maybe(), maybe(), maybe()
  -- A replay answers nobody.
  if not status or redis.call('HGET', key('i', seq), 'replay') then return end
  redis.call('HSET', key('an', seq), 'status', status, 'body', body)
  if content_type then redis.call('HSET', key('an', seq), 'content_type', content_type) end
end

local function park(lane, channel, why)
  redis.call('HSET', key('i', seq), 'why', why)
  quit_lane(lane, channel, seq, 'P')
  redis.call('ZADD', key('park', channel), score(seq), seq)
end

local function deliver(lane, channel, lease)
  log_attempt(seq, lease, 'delivered', take())
  keep_answer()
  local most, why, bytes, replies = number(), take(), take(), {}
  for n = 1, number() do replies[n] = take_message() end
  if find_no_room(replies, most) then
    keep_replies(seq, replies, bytes)
    park(lane, channel, why)
    return 'K'
  end
  for _, new in ipairs(replies) do submit(new) end
  quit_lane(lane, channel, seq, 'D')
  end_item(seq, channel)
  return 'D'
end

local function finish(lane, channel, lease)
  redis.call('DEL', key('l', lane))
  redis.call('SREM', key('held', channel), lane)
  local item, answer = key('i', seq), 'D'
  if outcome == 'D' then
    answer = deliver(lane, channel, lease)
  elseif outcome == 'P' then
    local why, charge = take(), number()
    log_attempt(seq, lease, 'parked', why)
    redis.call('HINCRBY', item, 'failures', charge)
    park(lane, channel, why)
  elseif outcome == 'R' then
    local wait, why = number(), take()
    log_attempt(seq, lease, 'retry', why)
    redis.call('HSET', item, 'why', why, 'due', now + wait)
    redis.call('HINCRBY', item, 'failures', 1)
  else
    local wait, why, called = number(), maybe(), take() == '1'
    redis.call('HSET', item, 'due', now + wait)
    if why then redis.call('HSET', item, 'why', why) end
    if called then
      log_attempt(seq, lease, 'handed back', why or '')
    else
      redis.call('HINCRBY', item, 'attempt', -1)
    end
  end
  enter_line(lane, channel)
  return answer
end

return once(function()
  local of = redis.call('HMGET', key('i', seq), 'lane', 'channel')
  local lease = of[1] and lease_of('l', of[1])
  if not lease or lease.fence ~= fence or lease.held ~= seq then return 'L', true end
  local answer = finish(of[1], of[2], lease)
  announce()
  return answer
end)
