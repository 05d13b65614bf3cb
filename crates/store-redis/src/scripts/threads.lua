-- Threads. `nm:` leads from every name of a peer to the name its thread goes by, `al:` back from that; `t:` is the thread, `te:` what was
-- said in it by number, and `ts:` are all threads by their last words.
--
-- Where a name leads, or nothing when it is not known. Names lead straight there, but an older version let them lead on from one to the next, and
-- even in a circle: that ends at the smallest name of it, wherever one comes in.
local function known(name)
  local way, place, thread = {}, {}, redis.call('HGET', key('nm'), name)
  while thread and not place[thread] and #way < 16 do
    way[#way + 1], place[thread] = thread, #way + 1
    local next = redis.call('HGET', key('nm'), thread)
    if not next or next == thread then return thread end
    thread = next
  end
  for n = place[thread] or #way + 1, #way do
    if way[n] < thread then thread = way[n] end
  end
  return thread
end

local function thread_of(name) return known(name) or name end

local function call_it(name, thread)
  local before = redis.call('HGET', key('nm'), name)
  if before == thread then return end
  if before then redis.call('SREM', key('al', before), name) end
  redis.call('HSET', key('nm'), name, thread)
  redis.call('SADD', key('al', thread), name)
end

-- The thread of the first of an event's names that is known, or that of its peer.
local function thread_of_any(peer, aliases)
  local thread = known(peer)
  for _, name in ipairs(aliases) do thread = thread or known(name) end
  return thread or peer
end

-- Names seen together are one person from now on; the thread of the first of them that is known goes on. Answers with it and
-- with the names that lead there only from now on.
local function learn_names(peer, aliases)
  local thread, others, seen = thread_of_any(peer, aliases), {}, {}
  seen[thread] = true
  local function learn(name)
    if name and not seen[name] then others[#others + 1], seen[name] = name, true end
  end
  local function look(name)
    local led = redis.call('HGET', key('nm'), name)
    if led == thread then return end
    learn(name)
    learn(led)
    learn(known(name))
  end
  look(peer)
  for _, name in ipairs(aliases) do look(name) end
  call_it(thread, thread)
  for _, other in ipairs(others) do
    for _, name in ipairs(redis.call('SMEMBERS', key('al', other))) do call_it(name, thread) end
    call_it(other, thread)
  end
  return thread, others
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
