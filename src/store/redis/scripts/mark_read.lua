-- Sets the unread count of a thread to zero; 0 when there is no such thread.
local thread = find_thread(take())
if redis.call('EXISTS', key('t', thread)) == 0 then return 0 end
redis.call('HDEL', key('t', thread), 'unread')
return 1
