-- Writes the account's name among its own keys, and where its numbers and fences begin: above all that were moved here. A number that is
-- another's means that the registry was lost and the accounts were not.
local account, seq, fence = take(), take(), take()
local there = redis.call('HGET', key('meta'), 'account')
if there and there ~= account then return redis.error_reply('HAPAX this number is the account of another: the registry was lost') end
redis.call('HSETNX', key('meta'), 'seq', seq)
redis.call('HSETNX', key('meta'), 'fence', fence)
return redis.call('HSET', key('meta'), 'account', account)
