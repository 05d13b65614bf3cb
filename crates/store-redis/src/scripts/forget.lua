-- Takes the words out of events and messages of this account that are over, and of threads; answers how many events, how many messages, and
-- how many of either are not over yet. Numbers come with the second of their ids.
local events, messages, open = 0, 0, 0

for _ = 1, number() do
  local seq, at_s = take(), number()
  local event = redis.call('GET', key('e', seq))
  event = event and cmsgpack.unpack(event)
  if event and second(event[1]) == at_s then
    if redis.call('HGET', key('w', event[2]), 'open') ~= '0' then
      open = open + 1
    else
      events = events + 1
      event[10] = false
      redis.call('SET', key('e', seq), cmsgpack.pack(event))
      redis.call('HSET', key('w', event[2]), 'headers', '', 'body', '')
      if event[3] then redis.call('DEL', key('an', event[3])) end
    end
  end
end

for _ = 1, number() do
  local seq, at_s = take(), number()
  local of = redis.call('HMGET', key('m', seq), 'created', 'lane')
  if of[1] and second(of[1]) == at_s then
    if of[2] then
      open = open + 1
    else
      messages = messages + 1
      redis.call('HDEL', key('m', seq), 'text')
      redis.call('HSET', key('m', seq), 'payload', '')
    end
  end
end

for _ = 1, number() do redis.call('HDEL', key('t', find_thread(take())), 'text') end
return { events, messages, open }
