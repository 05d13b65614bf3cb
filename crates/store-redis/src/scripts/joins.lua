-- Lanes of names that turned out to be one person's are one, in the inbox and in the outbox. One of them speaks for all: `jn:` and `ojn:` lead from
-- a lane to that one, `jg:` and `ojg:` back from it. What was put into a lane before stays in it, and so do leases; when nothing is left of it, its
-- name leads nowhere again.
local INBOX = { items = 'li', leases = 'l', joins = 'jn', groups = 'jg' }
local OUTBOX = { items = 'oli', leases = 'ol', joins = 'ojn', groups = 'ojg' }

local function is_own(lane) return string.sub(lane, 1, 1) == '#' end

local function lease_of(kind, lane)
  local got = redis.call('HMGET', key(kind, lane), 'held', 'fence', 'worker', 'leased', 'until')
  return got[1] and { held = got[1], fence = got[2], worker = got[3], leased = got[4], till = got[5], lane = lane }
end

-- Mostly there are none, and then it is asked once.
local function any_joins(queue)
  if queue.any == nil then queue.any = redis.call('EXISTS', key(queue.joins)) == 1 end
  return queue.any
end

local function speaker(queue, lane) return any_joins(queue) and redis.call('HGET', key(queue.joins), lane) or lane end

-- A lane that speaks, and all that it speaks for.
local function group(queue, lane)
  if is_own(lane) or not any_joins(queue) then return { lane } end
  return { lane, unpack(redis.call('SMEMBERS', key(queue.groups, lane))) }
end

-- The lowest that waits in a lane, or in one that it speaks for.
local function lowest(queue, lane)
  local first = false
  for _, one in ipairs(group(queue, lane)) do
    local head = redis.call('ZRANGE', key(queue.items, one), 0, 0)[1]
    if head and (not first or is_below(head, first)) then first = head end
  end
  return first
end

-- The leases that are out of a lane and of those that it speaks for, the lowest first.
local function leases_of(queue, lane)
  local leases = {}
  for _, one in ipairs(group(queue, lane)) do leases[#leases + 1] = lease_of(queue.leases, one) or nil end
  table.sort(leases, function(a, b) return is_below(a.held, b.held) end)
  return leases
end

-- When the last of them ends.
local function leased_until(queue, lane)
  local last = false
  for _, one in ipairs(group(queue, lane)) do
    local till = redis.call('HGET', key(queue.leases, one), 'until')
    if till and (not last or tonumber(till) > tonumber(last)) then last = till end
  end
  return last
end

-- Makes one lane speak for another and for all that this one spoke for.
local function speak_for(queue, lane, other)
  for _, one in ipairs(group(queue, other)) do
    redis.call('HSET', key(queue.joins), one, lane)
    redis.call('SADD', key(queue.groups, lane), one)
  end
  redis.call('DEL', key(queue.groups, other))
  queue.any = true
end

-- Forgets a lane that another speaks for, once nothing is left of it.
local function tidy(queue, lane)
  local speaks = speaker(queue, lane)
  if speaks ~= lane and redis.call('EXISTS', key(queue.items, lane)) == 0 then
    redis.call('HDEL', key(queue.joins), lane)
    redis.call('SREM', key(queue.groups, speaks), lane)
  end
end
