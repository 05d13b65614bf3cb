-- All accounts and the channels they are in, the highest number that was moved into this store, and whether moved keys are left, with the
-- version of that; nothing where the caller has it.
local version = redis.call('HGET', key('meta'), 'version') or ''
if version == take() then return false end
local moved = redis.call('HMGET', key('meta'), 'moved_to', 'moved_keys')
return { version, redis.call('HGETALL', key('accounts')), redis.call('SMEMBERS', key('places')), moved[1], moved[2] }
