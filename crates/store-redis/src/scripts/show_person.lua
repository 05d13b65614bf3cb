-- The thread of whoever goes by this name, or nothing.
local thread = thread_of(take())
return redis.call('EXISTS', key('t', thread)) == 1 and tell_thread(thread)
