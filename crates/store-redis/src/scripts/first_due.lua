-- Of each line that is named, the lanes of a channel that are due, those first that were due longest. An account that is paused has no turn
-- to send.
local channel, max, sends = take(), take(), take() == '1'
local lines = {}
if sends and redis.call('HEXISTS', key('paused'), channel) == 1 then return lines end
while taken < #ARGV do
  lines[#lines + 1] = redis.call('ZRANGEBYSCORE', key(take(), channel), '-inf', now, 'WITHSCORES', 'LIMIT', 0, max)
end
return lines
