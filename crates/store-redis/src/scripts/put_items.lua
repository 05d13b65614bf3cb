-- Takes over open items: `L` in a lane, `P` parked, `Q` quarantined.
local LINES = { P = 'park', Q = 'quar' }

local function put()
  local seq, channel, events, received, due, attempt = take(), take(), take(), take(), take(), take()
  local failures = take()
  local replay, place, why, bytes, replies = maybe(), take(), maybe(), maybe(), {}
  for n = 1, number() do replies[n] = take_message() end
  local first = split(events)[1]
  local event = cmsgpack.unpack(redis.call('GET', key('e', first)))
  local webhook = event[2]
  local lane = place ~= 'Q' and lane_again(event, channel, seq) or '#' .. seq
  redis.call('HSET', key('i', seq), 'channel', channel, 'webhook', webhook, 'events', events, 'attempt', attempt, 'received', received,
    'due', due, 'place', place, 'lane', lane, 'failures', failures)
  if why then redis.call('HSET', key('i', seq), 'why', why) end
  if bytes then keep_replies(seq, replies, bytes) end
  if replay then
    redis.call('HSET', key('i', seq), 'replay', replay)
    is_replay(first, seq)
  end
  local last, more = webhook, {}
  for _, member in ipairs(split(events)) do
    local of = cmsgpack.unpack(redis.call('GET', key('e', member)))[2]
    if tostring(of) ~= tostring(last) then more[#more + 1], last = of, of end
  end
  if #more > 0 then redis.call('HSET', key('i', seq), 'more', table.concat(more, ',')) end
  for _, of in ipairs({ webhook, unpack(more) }) do
    redis.call('HINCRBY', key('w', of), 'open', 1)
    redis.call('ZREM', key('wc', channel), of)
  end
  if place == 'L' then join_lane(lane, channel, seq) else redis.call('ZADD', key(LINES[place], channel), score(seq), seq) end
end

return once(function()
  for _ = 1, number() do put() end
  return 'D'
end)
