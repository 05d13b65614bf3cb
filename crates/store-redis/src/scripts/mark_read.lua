-- Sets the unread count of a thread to zero, so that all up to now is read; 0 when there is no such thread.
local thread = find_thread(take())
if redis.call('EXISTS', key('t', thread)) == 0 then return 0 end
redis.call('HDEL', key('t', thread), 'unread')
redis.call('HSET', key('t', thread), 'read_to', redis.call('HGET', key('meta'), 'seq') or 0)
return 1
