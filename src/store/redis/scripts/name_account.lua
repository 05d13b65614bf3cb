-- Writes the account's name among its own keys.
return redis.call('HSET', key('meta'), 'account', take())
