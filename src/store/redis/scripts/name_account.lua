-- Writes the account's name among its own keys. A number that is another's means that the registry was lost and the accounts were not.
local name = take()
local there = redis.call('HGET', key('meta'), 'account')
if there and there ~= name then return redis.error_reply('HAPAX this number is the account of another: the registry was lost') end
return redis.call('HSET', key('meta'), 'account', name)
