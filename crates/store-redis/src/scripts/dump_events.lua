-- Events of a channel; those that carry the body of their webhook with it.
return page(key('ev', take()), function(seq)
  local event = cmsgpack.unpack(redis.call('GET', key('e', seq)))
  local carried = tostring(event[2]) == seq and redis.call('HMGET', key('w', seq), 'headers', 'body', 'total')
  local bytes = redis.call('HSTRLEN', key('w', event[2]), 'body')
  return {
    seq, event[2], event[3], event[1], event[5], event[6], event[7], event[8] and 1 or 0, event[9], event[10], event[11], event[12],
    event[13] and 1 or 0, redis.call('LLEN', key('rp', seq)), bytes, carried,
  }, carried and bytes
end)
