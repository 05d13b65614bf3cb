-- Moves the end of leases, of items (`i`) or of messages (`m`); tells for each whether it is still held.
local kind, hold, count = take(), number(), number()
local held = {}
for n = 1, count do
  local seq, fence = take(), take()
  local lane = redis.call('HGET', key(kind, seq), 'lane')
  local leases = kind == 'i' and 'l' or 'ol'
  local lease = lane and lease_of(leases, lane)
  held[n] = (lease and lease.fence == fence and lease.held == seq) and 1 or 0
  if held[n] == 1 then
    work_off()
    redis.call('HSET', key(leases, lane), 'until', now + hold)
    if kind == 'i' then enter_line(lane, redis.call('HGET', key('i', seq), 'channel')) else enter_outbox_line(lane) end
  end
end
return held
