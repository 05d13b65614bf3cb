-- All accounts and the channels they are in, with the version of that; only the version where the caller knows it.
local version = tonumber(redis.call('HGET', key('meta'), 'version') or 0)
if version == number() then return { version } end
return { version, redis.call('HGETALL', key('accounts')), redis.call('SMEMBERS', key('places')) }
