-- The outbox. A message is `m:`; while it is in the outbox it has a `lane`, an `attempt` and, unless it waits for somebody's word, a
-- time when it is `due`. Lanes are like those of the inbox: `oli:` for a thread, `#` and the number for a message in doubt or to be sent later; leases are
-- `ol:`, the lines of a channel `od:`, one for each priority. `out:` are a channel's open messages, `unk:` those in doubt, `bgn:` those begun.
-- `rep:` are a channel's open replies and `dbt:` its messages in doubt, which are counted apart when it is asked for room.
-- `pid:` leads from a provider's name to its message; `es:` is what was heard of a name that nobody has yet, and `early:` are those names.
local QUEUED, SENDING, UNKNOWN, SENT, FAILED = 0, 1, 2, 3, 4
local STATUSES = { 'queued', 'sending', 'unknown', 'sent', 'failed', 'delivered', 'read', 'played' }
local ROUNDS_MAX, ROUNDS_KEPT = 50, 200

local function first_of(lane)
  if not is_own(lane) then return lowest(OUTBOX, lane) end
  local seq = string.sub(lane, 2)
  local open = redis.call('HMGET', key('m', seq), 'lane', 'due')
  return open[1] == lane and open[2] and seq
end

local function line_of(seq)
  local of = redis.call('HMGET', key('m', seq), 'channel', 'priority')
  return key('od', of[2] .. ':' .. of[1])
end

local function leave_outbox_line(lane)
  lane = speaker(OUTBOX, lane)
  local head = first_of(lane)
  if head then redis.call('ZREM', line_of(head), wide(head) .. lane) end
end

local function enter_outbox_line(lane)
  lane = speaker(OUTBOX, lane)
  local head = first_of(lane)
  if not head then return end
  local due = leased_until(OUTBOX, lane) or redis.call('HGET', key('m', head), 'due')
  redis.call('ZADD', line_of(head), due, wide(head) .. lane)
end

local function out_join(seq, lane)
  lane = speaker(OUTBOX, lane)
  leave_outbox_line(lane)
  redis.call('HSET', key('m', seq), 'lane', lane)
  if not is_own(lane) then redis.call('ZADD', key('oli', lane), score(seq), seq) end
  enter_outbox_line(lane)
end

local function out_quit(seq, lane)
  local speaks = speaker(OUTBOX, lane)
  leave_outbox_line(speaks)
  redis.call('HDEL', key('m', seq), 'lane')
  if not is_own(lane) then redis.call('ZREM', key('oli', lane), seq) end
  tidy(OUTBOX, lane)
  enter_outbox_line(speaks)
end

-- Makes the lanes of two names of one person one, if anything waits in the first.
local function join_names_out(channel, name, peer)
  local from, into = speaker(OUTBOX, lane_of(channel, name)), speaker(OUTBOX, lane_of(channel, peer))
  if from == into or not first_of(from) then return end
  leave_outbox_line(from)
  leave_outbox_line(into)
  speak_for(OUTBOX, into, from)
  enter_outbox_line(into)
end

-- Counts an open message where it belongs: with the replies, with those in doubt, or with the rest.
local function count_open(seq, unknown)
  local of = redis.call('HMGET', key('m', seq), 'channel', 'priority')
  redis.call(unknown and 'SADD' or 'SREM', key('dbt', of[1]), seq)
  redis.call(of[2] == '0' and not unknown and 'SADD' or 'SREM', key('rep', of[1]), seq)
end

-- What becomes of a message, as `domain/outgoing.rs` says it: `outgoing` loads one, the rules change it, `keep` writes what they changed.
local function hear_step(steps, status, at_ms)
  if not steps[status] or steps[status] > at_ms then steps[status] = at_ms end
end

local function leave_queue(steps) steps[SENDING], steps[UNKNOWN] = nil, nil end

local function status_of(steps)
  for status = 7, 1, -1 do
    if steps[status] then return status end
  end
  return QUEUED
end

local function write_steps(steps)
  local parts = {}
  for status = 0, 7 do
    if steps[status] then parts[#parts + 1] = STATUSES[status + 1] .. '=' .. string.format('%.0f', steps[status]) end
  end
  return table.concat(parts, ',')
end

local function read_steps(text)
  local steps = {}
  for status = 0, 7 do steps[status] = tonumber(string.match(',' .. text, ',' .. STATUSES[status + 1] .. '=(-?%d+)')) end
  return steps
end

local function outgoing(seq)
  local of = redis.call('HMGET', key('m', seq), 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7', 'provider_id', 'why', 'past', 'lane',
    'attempt', 'failures', 'due', 'begun', 'unknown')
  local state = { steps = {}, provider_id = of[9] or nil, why = of[10] or nil, past = of[11] and cjson.decode(of[11]) or {} }
  for status = 0, 7 do state.steps[status] = tonumber(of[status + 1] or nil) end
  state.past.tries, state.past.rounds = state.past.tries or 0, state.past.rounds or {}
  if of[12] then
    state.place = { attempt = tonumber(of[13] or 0), failures = tonumber(of[14] or 0), due = tonumber(of[15] or nil),
      begun = tonumber(of[16] or nil), unknown = of[17] and true or false, held = is_own(of[12]) and not of[17] }
  end
  return state
end

local function write_past(past)
  local rounds = #past.rounds > 0 and past.rounds or nil
  if past.tries == 0 and not past.doubt and not rounds then return nil end
  return cjson.encode({ tries = past.tries, doubt = past.doubt, rounds = rounds })
end

-- The lane of whom a message is to, by the name that thread goes by now; what is in line already stays there.
local function lane_today(channel, lane, peer, home)
  if lane and not is_own(lane) then return lane end
  local thread = known(peer)
  return thread and lane_of(channel, thread) or home
end

local function keep(seq, state)
  local row, place = key('m', seq), state.place or {}
  local of = redis.call('HMGET', row, 'lane', 'due', 'unknown', 'begun', 'channel', 'home', 'created', 'peer')
  local alone = place.unknown or place.held
  local lane = state.place and (alone and '#' .. seq or lane_today(of[5], of[1], of[8], of[6]))
  local moves, waits = of[1] ~= lane, tonumber(of[2] or nil) ~= place.due
  if of[1] and moves then out_quit(seq, of[1]) end
  if lane and waits and not moves then leave_outbox_line(lane) end
  local set, gone = {}, {}
  local function put(name, value)
    if value then set[#set + 1], set[#set + 2] = name, value else gone[#gone + 1] = name end
  end
  for status = 0, 7 do put('s' .. status, state.steps[status]) end
  put('provider_id', state.provider_id)
  put('why', state.why)
  put('past', write_past(state.past))
  put('attempt', place.attempt)
  put('failures', place.failures)
  put('due', place.due)
  put('begun', place.begun)
  put('unknown', place.unknown and 1)
  if #set > 0 then redis.call('HSET', row, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', row, unpack(gone)) end
  if place.begun then redis.call('SADD', key('bgn'), seq) else redis.call('SREM', key('bgn'), seq) end
  if place.unknown then redis.call('ZADD', key('unk'), score(seq), seq) else redis.call('ZREM', key('unk'), seq) end
  if lane and moves then out_join(seq, lane) end
  if lane and waits and not moves then enter_outbox_line(lane) end
  if lane and of[1] ~= lane then count_open(seq, place.unknown) end
  if lane and not of[1] then
    redis.call('ZREM', key('mc', of[5]), seq)
    redis.call('ZADD', key('out', of[5]), score(seq), seq)
  elseif of[1] and not lane then
    redis.call('ZREM', key('out', of[5]), seq)
    redis.call('SREM', key('rep', of[5]), seq)
    redis.call('SREM', key('dbt', of[5]), seq)
    redis.call('ZADD', key('mc', of[5]), of[7], seq)
  end
end

local function attempt_of(state) return state.place and state.place.attempt or state.past.tries end

local function in_doubt(state) return state.past.doubt or (state.place and state.place.unknown) end

local function put_aside(past, round)
  past.rounds[#past.rounds + 1] = round
  if #past.rounds > ROUNDS_KEPT then table.remove(past.rounds, 1) end
end

-- Says of the last try what is known, and of an earlier one that it is not known.
local function with_doubt(state, why)
  local doubt = state.past.doubt
  if doubt and doubt < attempt_of(state) then return why .. '; try ' .. doubt .. ' may have gone out' end
  return why
end

local function end_as(state, status, why, at_ms)
  state.past.tries, state.place, state.why = attempt_of(state), nil, why
  hear_step(state.steps, status, at_ms)
end

local function end_as_sent(state, at_ms)
  local past = state.past
  if past.doubt == attempt_of(state) then past.doubt = nil end
  end_as(state, SENT, past.doubt and 'try ' .. past.doubt .. ' may have gone out too', at_ms)
end

local function settle_as_known(state, at_ms)
  if not (state.place and state.provider_id) then return false end
  end_as_sent(state, at_ms)
  return true
end

local function begin_try(state)
  local place, past = state.place, state.past
  if place.begun then
    past.doubt = past.doubt or place.attempt
    place.attempt = place.attempt + 1
  end
  place.begun = now
  leave_queue(state.steps)
  hear_step(state.steps, SENDING, now)
end

-- A try that was begun and that nobody is at may have gone out.
local function remember_begun(state)
  local place, past = state.place, state.past
  if place and place.begun then past.doubt = past.doubt or place.attempt end
end

local function lose_lease(state)
  if not settle_as_known(state, now) then remember_begun(state) end
end

local function requeue(state, due, why, charged)
  local place = state.place
  state.why = with_doubt(state, why)
  leave_queue(state.steps)
  state.place = { attempt = place.attempt, failures = place.failures + charged, due = due, unknown = false }
end

local function doubt(state, why, check)
  local place = state.place
  state.why = with_doubt(state, why)
  hear_step(state.steps, UNKNOWN, now)
  place.begun, place.due, place.unknown, place.held = place.begun or now, check, true, false
end

local function was_called(past, name)
  for n = #past.rounds, 1, -1 do
    if past.rounds[n].provider_id == name then return past.rounds[n] end
  end
end

-- Makes a name lead to the message, and takes over the statuses that came before.
local function name_message(seq, state, name)
  redis.call('HSET', key('pid'), name, seq)
  local early = redis.call('HGETALL', key('es', name))
  for n = 1, #early, 2 do hear_step(state.steps, tonumber(string.sub(early[n], 2)), tonumber(early[n + 1])) end
  redis.call('DEL', key('es', name))
  redis.call('ZREM', key('early'), name)
end

local function call_message(seq, state, name)
  if state.provider_id and state.provider_id ~= name then
    put_aside(state.past, { provider_id = state.provider_id, steps = '' })
  end
  state.provider_id = name
  name_message(seq, state, name)
end

local function hear_word(seq, state, word, leased)
  local past, now_called = state.past, state.provider_id == word.id
  local round = not now_called and was_called(past, word.id)
  if round then
    local steps = read_steps(round.steps)
    hear_step(steps, word.status, word.at_ms)
    round.steps = write_steps(steps)
    return
  end
  if word.by_handle and (now_called or not state.provider_id) then
    state.provider_id = word.id
    name_message(seq, state, word.id)
  end
  hear_step(state.steps, word.status, word.at_ms)
  if state.place then
    if state.place.unknown and not leased then settle_as_known(state, word.at_ms) end
  elseif past.doubt and past.doubt == past.tries then
    past.doubt, state.why = nil, nil
  end
end

local function log_try(lease, outcome, detail)
  local attempt = tonumber(redis.call('HGET', key('m', lease.held), 'attempt') or 0)
  local row = { attempt, lease.fence, lease.worker, tonumber(lease.leased), now, outcome, detail }
  redis.call('RPUSH', key('mt', lease.held), cmsgpack.pack(row))
end

local function is_leased(seq)
  local lane = redis.call('HGET', key('m', seq), 'lane')
  return lane and redis.call('HGET', key('ol', lane), 'held') == tostring(seq)
end

-- The lane of a message that is leased under this fence.
local function lane_held(seq, fence)
  local lane = redis.call('HGET', key('m', seq), 'lane')
  local lease = lane and lease_of('ol', lane)
  if lease and lease.fence == fence and lease.held == seq then return lane, lease end
end

local function take_message()
  return {
    channel = take(), peer = take(), request_id = take(), fingerprint = take(), text = maybe(), preview = maybe(),
    payload = take(), priority = take(), reply_to = maybe(), send_at = maybe_number(),
  }
end

-- The message that was made for this request before, or the id under which the request is kept now: where another channel has taken it, apart.
local function known_request(new)
  local apart = new.request_id .. '\31' .. new.channel
  local known = redis.call('HGET', key('rq'), apart) or redis.call('HGET', key('rq'), new.request_id)
  if not known then return false, new.request_id end
  local is_own = redis.call('HGET', key('m', known), 'channel') == new.channel
  return is_own and known, apart
end

-- `N` a new message, `R` the same request again, `M` its id with another content.
local function submit(new)
  local known, request_id = known_request(new)
  if known then
    local of = redis.call('HMGET', key('m', known), 'fingerprint', 'created', 'call')
    local same = of[1] == new.fingerprint and 'R' or 'M'
    return { of[3] == ARGV[2] and 'N' or same, known, tonumber(of[2]) }
  end
  local seq, thread = next_seq(), thread_of(new.peer)
  local row, home = key('m', seq), lane_of(new.channel, thread)
  local held = new.send_at and new.send_at > now
  if new.peer ~= thread then join_names_out(new.channel, new.peer, thread) end
  redis.call('HSET', row, 'channel', new.channel, 'peer', new.peer, 'request_id', request_id, 'fingerprint', new.fingerprint,
    'payload', new.payload, 'priority', new.priority, 'created', now, 'thread', thread, 'home', home, 'call', ARGV[2],
    's0', now, 'attempt', 0, 'due', held and new.send_at or now)
  if new.text then redis.call('HSET', row, 'text', new.text) end
  if new.reply_to then redis.call('HSET', row, 'reply_to', new.reply_to) end
  redis.call('HSET', key('rq'), request_id, seq)
  redis.call('ZADD', key('out', new.channel), seq, seq)
  count_open(seq, false)
  out_join(seq, held and '#' .. seq or home)
  say(thread, new.channel, 'm' .. seq, seq, false, new.preview)
  return { 'N', seq, now }
end

-- How many of a channel are in the outbox and not in doubt: the replies, or the rest.
local function waiting(channel, is_reply)
  local replies = redis.call('SCARD', key('rep', channel))
  if is_reply then return replies end
  return redis.call('ZCARD', key('out', channel)) - redis.call('SCARD', key('dbt', channel)) - replies
end

-- Whether this would be one more than may wait.
local function is_full_for(new, most)
  return waiting(new.channel, new.priority == '0') >= most and not known_request(new)
end

-- Of an answer's replies, all are queued or none: this says whether one of them finds no room.
local function find_no_room(replies, most)
  for _, new in ipairs(replies) do
    if is_full_for(new, most) then return true end
  end
  return false
end
