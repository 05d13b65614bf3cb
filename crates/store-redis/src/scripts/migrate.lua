-- Writes down the version of the layout where there is none; answers with the one that is there.
redis.call('HSETNX', key('meta'), 'layout', take())
return tonumber(redis.call('HGET', key('meta'), 'layout'))
