-- Says that all is there: the highest number that was moved, and whether keys were. KEYS[1] is the root of the registry.
redis.call('HDEL', key('settings'), take())
redis.call('HSET', key('meta'), 'moved_to', take(), 'version', ARGV[2])
if take() == '1' then redis.call('HSET', key('meta'), 'moved_keys', 1) end
announce()
return 1
