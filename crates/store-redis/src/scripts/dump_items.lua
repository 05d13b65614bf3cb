-- Open items of a line, with the event that each begins with, and who holds it.
return page(key(take(), take()), function(seq)
  local of = redis.call('HMGET', key('i', seq), 'received', 'place', 'attempt', 'replay', 'why', 'due', 'events', 'lane', 'channel',
    'failures', 'replies')
  local events = split(of[7])
  local first = cmsgpack.unpack(redis.call('GET', key('e', events[1])))
  local lease = of[2] == 'L' and lease_of('l', of[8])
  local held = lease and lease.held == seq and { lease.fence, lease.worker, lease.leased }
  return { seq, of[1], of[2], of[3], of[10] or 0, of[4], of[5], of[6], of[9], events, first[1], first[2], first[5],
    first[7] and thread_of(first[7]), of[11], held }
end)
