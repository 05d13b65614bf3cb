-- Rows as the reads tell them: lists of values in a fixed order, with nothing where there is nothing.
local function tell_item(seq)
  local of = redis.call('HMGET', key('i', seq), 'channel', 'attempt', 'replay', 'place', 'why', 'received', 'due', 'events', 'lane',
    'failures')
  local events = split(of[8])
  local first = cmsgpack.unpack(redis.call('GET', key('e', events[1])))
  local lease = of[4] == 'L' and lease_of('l', of[9])
  local held = lease and lease.held == tostring(seq) and { lease.worker, lease.till, lease.fence }
  return { seq, of[6], events[1], first[1], #events, of[1], of[2], of[10] or 0, of[3], of[4], of[5], of[7], held }
end

local function tell_event(seq, event)
  local place = 'K'
  if event[3] then place = redis.call('HGET', key('i', event[3]), 'place') or 'D' end
  local bytes = redis.call('HSTRLEN', key('w', event[2]), 'body')
  return {
    seq, event[1], event[4], event[5], event[6], event[7], event[8] and 1 or 0, event[9], place, bytes,
  }
end

local function tell_message(seq)
  local row = key('m', seq)
  local of = redis.call('HMGET', row, 'created', 'channel', 'peer', 'request_id', 'text', 'payload', 'priority', 'reply_to',
    'provider_id', 'why', 'past', 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7')
  local open = redis.call('HMGET', row, 'lane', 'attempt', 'failures', 'due', 'begun', 'unknown')
  local lease = open[1] and lease_of('ol', open[1])
  local held = lease and lease.held == tostring(seq) and { lease.worker, lease.till, lease.fence }
  local place = open[1] and { open[2], open[3], open[4], open[5] and 1 or 0, open[6] and 1 or 0, held }
  local tries = {}
  for n, row in ipairs(redis.call('LRANGE', key('mt', seq), 0, -1)) do tries[n] = cmsgpack.unpack(row) end
  of[#of + 1] = place
  of[#of + 1] = tries
  return { seq, unpack(of) }
end

local function tell_thread(thread)
  local of = redis.call('HMGET', key('t', thread), 'channel', 'last', 'text', 'direction', 'unread')
  return { thread, of[1], of[2], of[3], of[4], of[5], redis.call('SMEMBERS', key('al', thread)) }
end
