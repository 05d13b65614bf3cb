-- Writes down that no moved key is left. KEYS[1] is the root of the registry.
redis.call('HDEL', key('meta'), 'moved_keys')
return redis.call('HSET', key('meta'), 'version', ARGV[2])
