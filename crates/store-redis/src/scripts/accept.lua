-- Takes in the events of one webhook that are of this account. A claim is `k:`: the event, when, its fingerprint, when it ends, and which
-- call won it with which of its events, so that the same call made again after a cut gets the same answer.
if not is_account(take()) then return 'U' end
local channel, window, headers, body, total, count = take(), number(), take(), take(), take(), number()
local quiet, longest, most = maybe_number(), maybe_number(), maybe_number()
local webhook, webhook_events, new_items, any = false, {}, {}, false

local function take_event()
  local event = { window = number(), moved_first = maybe(), moved_first_at = maybe_number(), guard = maybe(), full = take() == '1', aliases = {} }
  event.key, event.fingerprint, event.kind, event.id, event.peer = take(), number(), take(), take(), maybe()
  for n = 1, number() do event.aliases[n] = take() end
  event.echo, event.status, event.handle = take() == '1', maybe_number(), maybe()
  event.handle_s, event.at_ms, event.text, event.preview = maybe_number(), maybe_number(), maybe(), maybe()
  event.index, event.waits, event.to = number(), take() == '1', take()
  if event.to == 'Q' then event.why, event.part = take(), take() end
  return event
end

local function claim(name, lasts, fingerprint, seq, n)
  local ends = now + lasts
  local kept = cmsgpack.pack({ seq, now, fingerprint, ends, ARGV[2], n })
  if by_server then
    redis.call('SET', key('k', name), kept, 'PX', lasts + 86400000)
  else
    redis.call('SET', key('k', name), kept)
  end
  redis.call('ZADD', key('keys'), ends, name)
end

local function holder_of(name)
  local won = redis.call('GET', key('k', name))
  won = won and cmsgpack.unpack(won)
  return won and won[4] > now and won
end

-- Who holds what an event was signed with: its number and its time.
local function guarded_by(event)
  if not event.guard then return false end
  if event.moved_first then return { event.moved_first, event.moved_first_at } end
  local held = holder_of(event.guard)
  return held and { held[1], held[2] }
end

local function keep_webhook(seq, bytes)
  redis.call('HSET', key('w', seq), 'headers', headers, 'body', bytes, 'total', total, 'channel', channel, 'received', now, 'open', 0)
  return seq
end

-- As `Coalesce::due_ms` says.
local function turn_due(began) return math.max(math.min(now + quiet, began + longest), now) end

-- Makes the event part of the turn that its lane has open, if there is one; answers with that.
local function take_turn(lane, seq)
  lane = speaker(INBOX, lane)
  local turn = quiet and redis.call('GET', key('tn', lane))
  if not turn then return false end
  if not is_moved(turn) then turn = tonumber(turn) end
  local of = redis.call('HMGET', key('i', turn), 'events', 'due', 'received', 'more')
  if now >= tonumber(of[2]) or #split(of[1]) >= most then return false end
  redis.call('HSET', key('i', turn), 'events', of[1] .. ',' .. seq, 'due', turn_due(tonumber(of[3])), 'more', of[4] and of[4] .. ',' .. webhook or webhook)
  redis.call('HINCRBY', key('w', webhook), 'open', 1)
  enter_line(lane, channel)
  return turn
end

-- Puts the event in line, or not; answers with its webhook and its item. `thread` is whose lane it waits in.
local function place(event, seq, thread)
  if event.to == 'Q' then
    keep_webhook(seq, event.part)
    redis.call('HSET', key('w', seq), 'events', seq)
    add_item(seq, channel, seq, seq)
    redis.call('HSET', key('i', seq), 'place', 'Q', 'why', event.why, 'lane', '#' .. seq)
    redis.call('ZADD', key('quar', channel), seq, seq)
    return seq, seq
  end
  webhook = webhook or keep_webhook(seq, body)
  webhook_events[#webhook_events + 1] = seq
  if event.to == 'K' then return webhook, false end
  local lane = thread and lane_of(channel, thread)
  local item = lane and not event.suspect and new_items[lane]
  if item then
    redis.call('HSET', key('i', item), 'events', redis.call('HGET', key('i', item), 'events') .. ',' .. seq)
    return webhook, item
  end
  if lane and not event.suspect then
    if thread ~= event.peer then join_names(channel, event.peer, thread) end
    new_items[lane] = take_turn(lane, seq) or seq
    if new_items[lane] ~= seq then return webhook, new_items[lane] end
  end
  add_item(seq, channel, webhook, seq)
  redis.call('HSET', key('i', seq), 'lane', lane or '#' .. seq)
  if event.suspect then
    local first = event.suspect[1] .. ' ' .. string.format('%.0f', event.suspect[2])
    redis.call('HSET', key('i', seq), 'place', 'P', 'suspect', 1, 'why', '\1' .. first)
    redis.call('ZADD', key('park', channel), score(seq), seq)
    return webhook, seq
  end
  if lane and quiet then redis.call('HSET', key('i', seq), 'due', turn_due(now)) end
  join_lane(lane or '#' .. seq, channel, seq)
  if lane and quiet then redis.call('SET', key('tn', speaker(INBOX, lane)), seq) end
  return webhook, seq
end

-- Keeps a status for the message that will turn out to be called so.
local function hear_early(event, at_ms)
  if redis.call('SCARD', key('bgn')) == 0 then return end
  local row, field = key('es', event.id), 's' .. event.status
  local known = redis.call('HGET', row, field)
  if not known or tonumber(known) > at_ms then redis.call('HSET', row, field, at_ms) end
  redis.call('ZADD', key('early'), now, event.id)
end

-- Takes note of a status or an echo; true when it is about a message of ours.
local function hear(event)
  local status = event.status
  if event.echo then status = event.kind == 'message' and SENT end
  if not status then return false end
  local at_ms = event.at_ms or now
  local created = event.handle and redis.call('HGET', key('m', event.handle), 'created')
  local by_handle = created and second(created) == event.handle_s and event.handle
  local seq = by_handle or redis.call('HGET', key('pid'), event.id)
  if not seq then
    if not event.echo then hear_early(event, at_ms) end
    return false
  end
  local state = outgoing(seq)
  hear_word(seq, state, { id = event.id, status = status, at_ms = at_ms, by_handle = by_handle }, is_leased(seq))
  keep(seq, state)
  return true
end

-- Takes note of the names in a message; what waits under names that are one person's from now on waits in one line.
local function learn_in_lanes(event)
  local thread, others = learn_names(event.peer, event.aliases)
  for _, name in ipairs(others) do
    join_names(channel, name, thread)
    join_names_out(channel, name, thread)
  end
  return thread
end

local function take_in(event, n)
  event.suspect = guarded_by(event)
  if event.suspect and event.full then return { 'D', event.suspect[1], event.suspect[2] } end
  local seq = next_seq()
  any = true
  claim(event.key, event.window, event.fingerprint, seq, n)
  if event.guard and not event.suspect then claim(event.guard, window, 0, seq, n) end
  local ours, thread = event.suspect or hear(event), false
  -- An echo of a message that is in the thread already is not said twice.
  if event.to ~= 'Q' and not ours and event.kind == 'message' and event.peer then
    thread = learn_in_lanes(event)
    say(thread, channel, 'e' .. seq, seq, not event.echo, event.preview)
  end
  local of_webhook, item = place(event, seq, event.waits and event.peer and (thread or thread_of_any(event.peer, event.aliases)))
  redis.call('SET', key('e', seq), cmsgpack.pack({
    now, of_webhook, item, channel, event.kind, event.id, event.peer, event.echo, event.at_ms, event.text, event.index, thread,
    event.to == 'Q', event.waits,
  }))
  redis.call('ZADD', key('ev', channel), seq, seq)
  return { event.suspect and 'S' or 'N', seq, now }
end

local answers = {}
for n = 1, count do
  local event = take_event()
  local won = holder_of(event.key)
  if won then
    -- 0: nobody knows what the first one said.
    local word = (won[3] == 0 or won[3] == event.fingerprint) and 'D' or 'C'
    if won[5] == ARGV[2] and won[6] == n then word = redis.call('HGET', key('i', won[1]), 'suspect') and 'S' or 'N' end
    answers[n] = { word, won[1], won[2] }
  else
    answers[n] = take_in(event, n)
  end
end
if webhook then
  redis.call('HSET', key('w', webhook), 'events', table.concat(webhook_events, ','))
  if redis.call('HGET', key('w', webhook), 'open') == '0' then redis.call('ZADD', key('wc', channel), now, webhook) end
end
if any then announce() end
return answers
