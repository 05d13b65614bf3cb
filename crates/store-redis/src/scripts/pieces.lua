-- Pieces of files that are to be sent. `f:` holds those of a name by their numbers, the line `fs` all of them by their end, each as its number and
-- its name, and `fb` the bytes of each channel.
local function member(name, n) return string.format('%010.0f', n) .. name end

local function count(name, bytes)
  local channel = string.match(name, '^[^/]*')
  if redis.call('HINCRBY', key('fb'), channel, bytes) <= 0 then redis.call('HDEL', key('fb'), channel) end
end

local function drop_piece(name, n)
  local bytes = redis.call('HSTRLEN', key('f', name), n)
  redis.call('HDEL', key('f', name), n)
  redis.call('ZREM', key('fs'), member(name, n))
  count(name, -bytes)
end
