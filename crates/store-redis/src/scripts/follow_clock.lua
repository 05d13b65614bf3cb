-- Moves what waits in a channel of this account, and the leases, with a clock that was set back since it was last looked at. What a person wants
-- sent at a certain time stays where it is: it waits alone and is not in doubt. What was dated by the clock while it was ahead is no younger
-- than now. Leases that were given or lengthened since the clock was set are right already, and who has one works: only an end that no lease
-- of now can have is moved, and one that is over.
local LEASE_MAX_MS = 3600000
local channel = take()
local seen = tonumber(redis.call('HGET', key('meta'), 'seen:' .. channel) or now)
work_off()
redis.call('HSET', key('meta'), 'seen:' .. channel, now)
for _, line in ipairs({ key('wc', channel), key('mc', channel), key('early') }) do
  local ahead = redis.call('ZRANGEBYSCORE', line, string.format('(%.0f', now), '+inf', 'LIMIT', 0, 1000)
  for _, one in ipairs(ahead) do redis.call('ZADD', line, now, one) end
end
if seen <= now then return 0 end
local back = string.format('%.0f', now - seen)

local moved = {}
local function move_end(row)
  if moved[row] then return moved[row] end
  local till = redis.call('HGET', row, 'until')
  if not till then return false end
  till = tonumber(till)
  if till > now + LEASE_MAX_MS then
    till = math.min(till + now - seen, now + LEASE_MAX_MS)
  elseif till <= now then
    till = till + now - seen
  end
  moved[row] = string.format('%.0f', till)
  redis.call('HSET', row, 'until', moved[row])
  return moved[row]
end

for _, seq in ipairs(redis.call('ZRANGE', key('way', channel), 0, -1)) do redis.call('HINCRBY', key('i', seq), 'due', back) end
for _, lane in ipairs(redis.call('SMEMBERS', key('held', channel))) do move_end(key('l', lane)) end
for _, member in ipairs(redis.call('ZRANGE', key('due', channel), 0, -1)) do enter_line(behind_wide(member), channel) end

for _, seq in ipairs(redis.call('ZRANGE', key('out', channel), 0, -1)) do
  local of = redis.call('HMGET', key('m', seq), 'lane', 'due', 'unknown')
  if of[2] and (of[3] or not is_own(of[1])) then redis.call('HINCRBY', key('m', seq), 'due', back) end
  move_end(key('ol', of[1]))
end
for priority = 0, 2 do
  local line = key('od', priority .. ':' .. channel)
  for _, member in ipairs(redis.call('ZRANGE', line, 0, -1)) do enter_outbox_line(behind_wide(member)) end
end
announce()
return 1
