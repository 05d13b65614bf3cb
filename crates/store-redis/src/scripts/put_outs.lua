-- Takes over which messages are in the outbox.
local function put()
  local seq, attempt, failures, due, begun, unknown = take(), take(), take(), maybe(), maybe(), take() == '1'
  local alone = take() == '1'
  local row = key('m', seq)
  local of = redis.call('HMGET', row, 'channel', 'home')
  redis.call('HSET', row, 'attempt', attempt, 'failures', failures)
  if due then redis.call('HSET', row, 'due', due) end
  if begun then
    redis.call('HSET', row, 'begun', begun)
    redis.call('SADD', key('bgn'), seq)
  end
  if unknown then
    redis.call('HSET', row, 'unknown', 1)
    redis.call('ZADD', key('unk'), score(seq), seq)
  end
  redis.call('ZREM', key('mc', of[1]), seq)
  redis.call('ZADD', key('out', of[1]), score(seq), seq)
  count_open(seq, unknown)
  out_join(seq, alone and '#' .. seq or of[2])
end

return once(function()
  for _ = 1, number() do put() end
  return 'D'
end)
