-- Leases the first message of this account's lanes that are due in a channel, replies before the rest.
local channel, most, worker, hold = take(), number(), take(), number()

local function next_lane()
  for priority = 0, 2 do
    local line = key('od', priority .. ':' .. channel)
    local member = redis.call('ZRANGEBYSCORE', line, '-inf', now, 'LIMIT', 0, 1)[1]
    if member then return behind_wide(member) end
  end
end

local function lease(lane)
  local any_left = false
  for _, lost in ipairs(leases_of(OUTBOX, lane)) do
    log_try(lost, 'lost', 'the lease ran out')
    redis.call('DEL', key('ol', lost.lane))
    local state = outgoing(lost.held)
    lose_lease(state)
    keep(lost.held, state)
    any_left = any_left or not state.place
  end
  enter_outbox_line(lane)
  local seq = first_of(lane)
  -- A lease that was out when its lane was joined may end while the first of all still waits for its time.
  if any_left or tonumber(redis.call('HGET', key('m', seq), 'due')) > now then return end
  local state = outgoing(seq)
  -- Heard of meanwhile, or held until now.
  if settle_as_known(state, now) or state.place.held then
    if state.place then state.place.held = false end
    keep(seq, state)
    return
  end
  if not state.past.doubt then
    remember_begun(state)
    if state.past.doubt then keep(seq, state) end
  end
  local fence = next_fence()
  if not redis.call('HGET', key('m', seq), 'begun') then redis.call('HINCRBY', key('m', seq), 'attempt', 1) end
  redis.call('HSET', key('ol', redis.call('HGET', key('m', seq), 'lane')), 'held', seq, 'fence', fence, 'worker', worker, 'leased', now, 'until', now + hold)
  enter_outbox_line(lane)
  return { seq, fence, now + hold }
end

local leases = once(function()
  local given = {}
  if most == 0 or redis.call('HEXISTS', key('paused'), channel) == 1 then return given, true end
  local lane = next_lane()
  if not lane then return given, true end
  work_off()
  while lane do
    given[#given + 1] = lease(lane)
    lane = #given < most and next_lane()
  end
  return given
end)

local told = {}
for _, lease in ipairs(leases) do
  local of = redis.call('HMGET', key('m', lease[1]), 'request_id', 'peer', 'payload', 'text', 'attempt', 'failures', 'created', 'begun')
  if of[1] then told[#told + 1] = { lease[1], lease[2], lease[3], unpack(of) } end
end
return told
