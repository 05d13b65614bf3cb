-- Sends a failed message, or one in doubt, once more. Answers `D` done, `N` not found, `L` too late.
local seq, at_s = take(), number()
local row = key('m', seq)

local function stands_failed()
  local steps = redis.call('HMGET', row, 's4', 's5', 's6', 's7')
  return steps[1] and not (steps[2] or steps[3] or steps[4])
end

return once(function()
  local of = redis.call('HMGET', row, 'created', 'lane', 'unknown', 'channel', 'home')
  if not of[1] or second(of[1]) ~= at_s then return 'N', true end
  local open, doubted = of[2], of[3]
  if not ((not open and stands_failed()) or doubted) or is_leased(seq) then return 'L', true end
  redis.call('HDEL', row, 's1', 's2', 's3', 's4', 's5', 's6', 's7')
  redis.call('HSET', row, 's0', of[1], 'attempt', 0)
  redis.call('ZREM', key('mc', of[4]), seq)
  redis.call('ZADD', key('out', of[4]), score(seq), seq)
  if open then
    requeue(seq, now, false)
  else
    redis.call('HDEL', row, 'why')
    redis.call('HSET', row, 'due', now)
    count_open(seq, false)
    out_join(seq, of[5])
  end
  announce()
  return 'D'
end)
