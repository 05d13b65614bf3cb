-- All accounts and the channels they are in, with the version of that; nothing where the caller has it.
local version = redis.call('HGET', key('meta'), 'version') or ''
if version == take() then return false end
return { version, redis.call('HGETALL', key('accounts')), redis.call('SMEMBERS', key('places')) }
