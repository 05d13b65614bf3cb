-- Threads. `nm:` leads from every name of a peer to the name its thread goes by, `al:` back from that; `t:` is the thread, `te:` what was
-- said in it by number, and `ts:` are all threads by their last words.
local function thread_of(name) return redis.call('HGET', key('nm'), name) or name end

local function call_it(name, thread)
  local before = redis.call('HGET', key('nm'), name)
  if before == thread then return end
  if before then redis.call('SREM', key('al', before), name) end
  redis.call('HSET', key('nm'), name, thread)
  redis.call('SADD', key('al', thread), name)
end

-- Names seen together are one person from now on; the thread that was known first, by the peer's own name if it can be, goes on.
local function learn_names(peer, aliases)
  local thread = redis.call('HGET', key('nm'), peer)
  for _, name in ipairs(aliases) do thread = thread or redis.call('HGET', key('nm'), name) end
  thread = thread or peer
  call_it(peer, thread)
  for _, name in ipairs(aliases) do call_it(name, thread) end
  return thread
end

local function say(thread, channel, entry, seq, incoming, preview)
  if not redis.call('HGET', key('nm'), thread) then call_it(thread, thread) end
  redis.call('ZADD', key('te', thread), seq, entry)
  redis.call('ZADD', key('ts'), now, thread)
  local row = key('t', thread)
  redis.call('HSETNX', row, 'channel', channel)
  redis.call('HSET', row, 'last', now, 'direction', incoming and 'in' or 'out')
  if preview then redis.call('HSET', row, 'text', preview) else redis.call('HDEL', row, 'text') end
  if incoming then redis.call('HINCRBY', row, 'unread', 1) end
end

-- The thread that goes by this name, or else the one that the name leads to now.
local function find_thread(name)
  if redis.call('EXISTS', key('t', name)) == 1 then return name end
  return thread_of(name)
end
