-- Delivers a recorded event once more. Answers with the new item and its time, or with nothing.
local event_seq, at_s = take(), number()
return once(function()
  local event = redis.call('GET', key('e', event_seq))
  event = event and cmsgpack.unpack(event)
  if not event or event[13] or second(event[1]) ~= at_s then return {}, true end
  local webhook, channel = event[2], event[4]
  local seq = next_seq()
  add_item(seq, channel, webhook, event_seq)
  redis.call('ZREM', key('wc', channel), webhook)
  redis.call('HSET', key('i', seq), 'replay', redis.call('RPUSH', key('rp', event_seq), seq))
  join_lane(lane_again(event, channel, seq), channel, seq)
  announce()
  return { seq, now }
end)
