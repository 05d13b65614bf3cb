-- Writes the account's name among its own keys, and where its numbers and fences begin: above all that were moved here.
local account, seq, fence = take(), take(), take()
redis.call('HSETNX', key('meta'), 'seq', seq)
redis.call('HSETNX', key('meta'), 'fence', fence)
return redis.call('HSET', key('meta'), 'account', account)
