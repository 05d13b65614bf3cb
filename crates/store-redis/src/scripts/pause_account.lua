-- Lets the account rest in a channel, or resumes it.
if not is_account(take()) then return 'U' end
local channel, why = take(), maybe()
if why then
  local known = redis.call('HGET', key('paused'), channel)
  local since = known and cmsgpack.unpack(known)[2] or now
  redis.call('HSET', key('paused'), channel, cmsgpack.pack({ why, since }))
else
  redis.call('HDEL', key('paused'), channel)
end
announce()
return 1
