-- Removes threads of one channel of this account whose last words are older than the retention and of which nothing is left, with all names
-- that lead to them; of the others that are old, the last words, when what said them is gone. Looks at some, from `skip` on; answers where to
-- go on, or nothing.
local channel, keep, skip, most = take(), number(), number(), number()

local function forget(thread)
  for _, name in ipairs(redis.call('SMEMBERS', key('al', thread))) do redis.call('HDEL', key('nm'), name) end
  redis.call('DEL', key('al', thread), key('t', thread), key('te', thread))
  redis.call('ZREM', key('ts'), thread)
end

-- Those that are old, and behind them those whose last words are from the future: they go with what said them.
local found = redis.call('ZRANGEBYSCORE', key('ts'), '-inf', now - keep, 'LIMIT', skip, most)
if #found < most then
  local passed = math.max(0, skip - redis.call('ZCOUNT', key('ts'), '-inf', now - keep))
  local ahead = redis.call('ZRANGEBYSCORE', key('ts'), '(' .. now, '+inf', 'LIMIT', passed, most - #found)
  for _, thread in ipairs(ahead) do found[#found + 1] = thread end
end
for _, thread in ipairs(found) do
  local of = redis.call('HMGET', key('t', thread), 'channel', 'cut')
  local newest = redis.call('ZREVRANGE', key('te', thread), 0, 0)[1]
  if of[1] ~= channel then
    skip = skip + 1
  elseif not newest then
    forget(thread)
  else
    if of[2] and not is_below(of[2], string.sub(newest, 2)) then redis.call('HDEL', key('t', thread), 'text') end
    skip = skip + 1
  end
end
return #found == most and skip
