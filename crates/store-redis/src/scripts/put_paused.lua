-- Takes over that the account rests in channels.
for _ = 1, number() do
  local channel, why, since = take(), take(), number()
  redis.call('HSET', key('paused'), channel, cmsgpack.pack({ why, since }))
end
return 'D'
