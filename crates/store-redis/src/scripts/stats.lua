-- Sizes: keys and messages in doubt of this account, and for each channel what there is of each kind.
local counts = { redis.call('ZCARD', key('keys')), redis.call('ZCARD', key('unk')) }
for n = 1, number() do
  local channel = take()
  local oldest = redis.call('ZRANGE', key('way', channel), 0, 0)[1]
  counts[n + 2] = {
    redis.call('ZCARD', key('ev', channel)), redis.call('ZCARD', key('way', channel)), redis.call('SCARD', key('held', channel)),
    redis.call('ZCARD', key('park', channel)), redis.call('ZCARD', key('quar', channel)),
    redis.call('ZCARD', key('out', channel)), oldest and redis.call('HGET', key('i', oldest), 'received'),
  }
end
return counts
