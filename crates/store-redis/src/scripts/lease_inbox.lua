-- Leases the first item of this account's lanes that are due in a channel.
local channel, most, worker, hold = take(), number(), take(), number()

local function lease(member)
  local speaks = behind_wide(member)
  for _, lost in ipairs(leases_of(INBOX, speaks)) do
    log_attempt(lost.held, lost, 'lost', 'the lease ran out')
    redis.call('DEL', key('l', lost.lane))
    redis.call('SREM', key('held', channel), lost.lane)
  end
  local seq = head_of(speaks)
  local of = redis.call('HMGET', key('i', seq), 'lane', 'due')
  -- A lease that was out when its lane was joined may end while the first of all still waits for its time.
  if tonumber(of[2]) > now then return enter_line(speaks, channel) end
  if not is_own(speaks) and redis.call('GET', key('tn', speaks)) == seq then close_turn(speaks) end
  local lane, fence = of[1], next_fence()
  redis.call('HSET', key('l', lane), 'held', seq, 'fence', fence, 'worker', worker, 'leased', now, 'until', now + hold)
  redis.call('SADD', key('held', channel), lane)
  redis.call('HINCRBY', key('i', seq), 'attempt', 1)
  enter_line(speaks, channel)
  return { seq, fence, now + hold }
end

local leases = once(function()
  local due = redis.call('ZRANGEBYSCORE', key('due', channel), '-inf', now, 'LIMIT', 0, most)
  if #due == 0 then return {}, true end
  work_off()
  local given = {}
  for _, member in ipairs(due) do given[#given + 1] = lease(member) end
  return given
end)

local told = {}
for _, lease in ipairs(leases) do
  local of = redis.call('HMGET', key('i', lease[1]), 'attempt', 'replay', 'received', 'webhook', 'events', 'failures', 'lane')
  if of[1] then
    local peer = peer_of(speaker(INBOX, of[7]), channel)
    local thread = peer and thread_of(peer)
    local webhook = redis.call('HMGET', key('w', of[4]), 'headers', 'body', 'total')
    local events, received, rest, last = {}, false, {}, of[4]
    for n, seq in ipairs(split(of[5])) do
      local event = cmsgpack.unpack(redis.call('GET', key('e', seq)))
      received = received or event[1]
      events[n] = { seq, event[1], event[5], event[11], thread or event[7] }
      if tostring(event[2]) ~= tostring(last) then
        last = event[2]
        local further = redis.call('HMGET', key('w', last), 'body', 'total')
        rest[#rest + 1] = { further[1], further[2], 0 }
      end
      if #rest > 0 then rest[#rest][3] = rest[#rest][3] + 1 end
    end
    told[#told + 1] = { lease[1], lease[2], lease[3], of[1], of[2], of[6] or 0, of[3], received, webhook[1], webhook[2],
      webhook[3], events, rest }
  end
end
return told
