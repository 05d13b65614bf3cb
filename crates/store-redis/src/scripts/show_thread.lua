-- A thread by any name of its peer, or nothing.
local thread = find_thread(take())
return redis.call('EXISTS', key('t', thread)) == 1 and tell_thread(thread)
