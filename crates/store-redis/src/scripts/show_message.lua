-- All that is known about a message, or nothing.
local seq = take()
return redis.call('EXISTS', key('m', seq)) == 1 and tell_message(seq)
