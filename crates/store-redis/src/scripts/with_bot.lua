-- Items of this account that are leased in a channel, the lease not over: item, its time, its first event, that one's time, attempt, peer.
local channel = take()
local rows = {}
for _, lane in ipairs(redis.call('SMEMBERS', key('held', channel))) do
  local lease = lease_of('l', lane)
  if lease and tonumber(lease.till) > now then
    local of = redis.call('HMGET', key('i', lease.held), 'received', 'events', 'attempt')
    local first = split(of[2])[1]
    local event = cmsgpack.unpack(redis.call('GET', key('e', first)))
    local peer = peer_of(speaker(INBOX, lane), channel)
    rows[#rows + 1] = { lease.held, of[1], first, event[1], of[3], peer and thread_of(peer) or event[7] }
  end
end
return rows
