-- Ends a try: `S` sent, `F` failed, `R` retry, `U` unknown, `H` handed back. Answers `D` done or `L` lost.
local seq, fence, outcome = take(), take(), take()
local row = key('m', seq)

-- It leaves the lane, so that the thread goes on.
local function doubt(lane, why, check)
  if settle_by_known_id(seq, now) then return end
  out_quit(seq, lane)
  redis.call('HSETNX', row, 'begun', now)
  redis.call('HSET', row, 'unknown', 1, 'why', why)
  if check then redis.call('HSET', row, 'due', now + check) else redis.call('HDEL', row, 'due') end
  redis.call('SADD', key('bgn'), seq)
  redis.call('ZADD', key('unk'), score(seq), seq)
  count_open(seq, true)
  out_join(seq, '#' .. seq)
  hear(row, UNKNOWN, now)
end

local function finish(lane, lease)
  redis.call('DEL', key('ol', lane))
  if outcome == 'S' then
    local provider_id = take()
    log_try(lease, 'sent', provider_id)
    name_message(seq, provider_id)
    end_open(seq)
    hear(row, SENT, now)
    redis.call('HDEL', row, 'why')
  elseif outcome == 'F' then
    local why = take()
    log_try(lease, 'failed', why)
    end_open(seq)
    hear(row, FAILED, now)
    redis.call('HSET', row, 'why', why)
  elseif outcome == 'R' then
    local wait, why = number(), take()
    log_try(lease, 'retry', why)
    requeue(seq, now + wait, why)
  elseif outcome == 'U' then
    local why, check = take(), maybe_number()
    log_try(lease, 'unknown', why)
    doubt(lane, why, check)
  else
    if not redis.call('HGET', row, 'begun') then redis.call('HINCRBY', row, 'attempt', -1) end
    redis.call('HSET', row, 'due', now + number())
  end
  enter_outbox_line(lane)
end

return once(function()
  local lane, lease = lane_held(seq, fence)
  if not lane then return 'L', true end
  finish(lane, lease)
  announce()
  return 'D'
end)
