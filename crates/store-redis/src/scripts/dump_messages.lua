-- Messages of a line, with all that hangs on them.
return page(key(take(), take()), function(seq)
  local row = key('m', seq)
  local told = redis.call('HMGET', row, 'created', 'channel', 'peer', 'request_id', 'fingerprint', 'text', 'payload', 'priority',
    'reply_to', 'thread', 'home', 'provider_id', 'why', 'past', 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7')
  -- Whose lane it is to be in.
  told[11] = known(told[3]) or peer_of(told[11], told[2])
  local open = redis.call('HMGET', row, 'lane', 'attempt', 'failures', 'due', 'begun', 'unknown', 'names', 'provider_id', 'past')
  local lease = open[1] and lease_of('ol', open[1])
  local held = lease and lease.held == seq and { lease.fence, lease.worker, lease.leased }
  local names, tries, seen, called = {}, {}, {}, open[7] and cmsgpack.unpack(open[7]) or {}
  for _, round in ipairs(open[9] and cjson.decode(open[9]).rounds or {}) do called[#called + 1] = round.provider_id end
  called[#called + 1] = open[8] or nil
  for _, name in ipairs(called) do
    if not seen[name] and redis.call('HGET', key('pid'), name) == seq then names[#names + 1] = name end
    seen[name] = true
  end
  for n, one in ipairs(redis.call('LRANGE', key('mt', seq), 0, -1)) do tries[n] = cmsgpack.unpack(one) end
  local n = #told
  told[n + 1] = open[1] and { open[2], open[3], open[4], open[5], open[6] and 1 or 0, is_own(open[1]) and 1 or 0 }
  told[n + 2], told[n + 3], told[n + 4] = held, names, tries
  return { seq, unpack(told) }, #told[7]
end)
