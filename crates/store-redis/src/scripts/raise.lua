-- Lets the account's numbers and fences begin above all that were moved, and forgets what only an import needs.
redis.call('HSET', key('meta'), 'seq', take(), 'fence', take())
return redis.call('DEL', key('mvt'))
