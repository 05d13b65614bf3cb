-- Puts a setting in the place of what is expected there; answers with what is there now. KEYS[1] is the root of the registry.
local name, expected, new = take(), maybe(), maybe()
if redis.call('HGET', key('settings'), name) == expected then
  if new then redis.call('HSET', key('settings'), name, new) else redis.call('HDEL', key('settings'), name) end
end
return redis.call('HGET', key('settings'), name)
