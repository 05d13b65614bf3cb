-- Threads of this account, newest first, up to a time. Looks at a bounded stretch from `skip` on: answers with what was found there, and
-- with where to go on.
local channel, last_ms, skip, most = maybe(), maybe(), number(), number()
local LOOKED = 1000
local found = redis.call('ZREVRANGEBYSCORE', key('ts'), last_ms or '+inf', '-inf', 'LIMIT', skip, LOOKED)
local rows, looked = {}, 0
for _, thread in ipairs(found) do
  if #rows == most then break end
  looked = looked + 1
  if not channel or redis.call('HGET', key('t', thread), 'channel') == channel then rows[#rows + 1] = tell_thread(thread) end
end
local more = #found == LOOKED or looked < #found
return { rows, more and skip + looked }
