-- Leases the first item of this account's lanes that are due in a channel.
local channel, most, worker, hold = take(), number(), take(), number()

local function lease(member)
  local lane = behind_wide(member)
  local lost = lease_of('l', lane)
  if lost then log_attempt(lost.held, lost, 'lost', 'the lease ran out') end
  local seq, fence = head_of(lane), next_fence()
  redis.call('HSET', key('l', lane), 'held', seq, 'fence', fence, 'worker', worker, 'leased', now, 'until', now + hold)
  redis.call('SADD', key('held', channel), lane)
  redis.call('HINCRBY', key('i', seq), 'attempt', 1)
  enter_line(lane, channel)
  return { seq, fence, now + hold }
end

local leases = once(function()
  local due = redis.call('ZRANGEBYSCORE', key('due', channel), '-inf', now, 'LIMIT', 0, most)
  if #due == 0 then return {}, true end
  work_off()
  local given = {}
  for n, member in ipairs(due) do given[n] = lease(member) end
  return given
end)

local told = {}
for _, lease in ipairs(leases) do
  local of = redis.call('HMGET', key('i', lease[1]), 'attempt', 'replay', 'received', 'webhook', 'events', 'failures')
  if of[1] then
    local webhook = redis.call('HMGET', key('w', of[4]), 'headers', 'body', 'total')
    local events, received = {}, false
    for n, seq in ipairs(split(of[5])) do
      local event = cmsgpack.unpack(redis.call('GET', key('e', seq)))
      received = received or event[1]
      events[n] = { seq, event[1], event[5], event[11], event[7] }
    end
    told[#told + 1] = { lease[1], lease[2], lease[3], of[1], of[2], of[6] or 0, of[3], received, webhook[1], webhook[2],
      webhook[3], events }
  end
end
return told
