-- Stores a setting unless there is one of that name; answers with what is there now. KEYS[1] is the root of the registry.
local name, value = take(), take()
redis.call('HSETNX', key('settings'), name, value)
return redis.call('HGET', key('settings'), name)
