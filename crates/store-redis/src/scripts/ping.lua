-- Proves that the server can be written to.
redis.call('HSET', key('meta'), 'ping', now)
return 1
