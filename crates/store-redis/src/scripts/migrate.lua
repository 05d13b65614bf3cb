-- Writes down the version of the layout where there is none, or when all was changed to this one; answers with the one that is there.
local layout, done = take(), take() == '1'
redis.call(done and 'HSET' or 'HSETNX', key('meta'), 'layout', layout)
return tonumber(redis.call('HGET', key('meta'), 'layout'))
