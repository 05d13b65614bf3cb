-- Puts parked items of this account back in line: one item (`I`), those of an event (`E`), or of a channel (`C`). Answers how many.
-- One that keeps replies is done with when there is room for them, and stays where it is when there is none.
local which, most, room = take(), number(), number()

local function redrive(seq, channel)
  local kept = redis.call('HGET', key('i', seq), 'kept')
  if kept then
    local replies = cmsgpack.unpack(kept)
    if find_no_room(replies, room) then return 0 end
    for _, new in ipairs(replies) do submit(new) end
    redis.call('ZREM', key('park', channel), seq)
    end_item(seq, channel)
    return 1
  end
  redis.call('HSET', key('i', seq), 'failures', 0, 'due', now)
  redis.call('ZREM', key('park', channel), seq)
  local first = split(redis.call('HGET', key('i', seq), 'events'))[1]
  join_lane(lane_again(cmsgpack.unpack(redis.call('GET', key('e', first))), channel, seq), channel, seq)
  return 1
end

-- A redrive of many must not deliver what somebody may have forged. Of a suspect that was made here the reason begins with a sign of its own,
-- of one that was moved here with the words.
local function is_suspected(why)
  return why and (why:sub(1, 1) == '\1' or why:sub(1, 20) == 'suspected replay of ')
end

local function candidates()
  if which == 'C' then return redis.call('ZRANGE', key('park', take()), 0, 2 * most + 199) end
  local seq, at_s = take(), number()
  if which == 'I' then
    local received = redis.call('HGET', key('i', seq), 'received')
    return received and second(received) == at_s and { seq } or {}
  end
  local event = redis.call('GET', key('e', seq))
  event = event and cmsgpack.unpack(event)
  if not event or second(event[1]) ~= at_s then return {} end
  local items = redis.call('LRANGE', key('rp', seq), 0, -1)
  if event[3] then table.insert(items, 1, event[3]) end
  return items
end

return once(function()
  local moved = 0
  for _, seq in ipairs(candidates()) do
    local of = redis.call('HMGET', key('i', seq), 'place', 'channel', 'why')
    if of[1] == 'P' and moved < most and not (which == 'C' and is_suspected(of[3])) then
      moved = moved + redrive(seq, of[2])
    end
  end
  if moved > 0 then announce() end
  return moved, moved == 0
end)
