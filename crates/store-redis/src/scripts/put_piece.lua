-- Keeps a piece until a time, or for a time. KEYS[1] is the root of the registry.
local name, n, ends, keep, bytes = take(), number(), maybe_number(), maybe_number(), take()
local before = redis.call('HSTRLEN', key('f', name), n)
redis.call('HSET', key('f', name), n, bytes)
redis.call('ZADD', key('fs'), string.format('%.0f', ends or now + keep), member(name, n))
count(name, #bytes - before)
return 1
