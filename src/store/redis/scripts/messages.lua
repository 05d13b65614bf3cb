-- The outbox. A message is `m:`; while it is in the outbox it has a `lane`, an `attempt` and, unless it waits for somebody's word, a
-- time when it is `due`. Lanes are like those of the inbox: `oli:` for a thread, `#` and the number for a message in doubt or to be sent later; leases are
-- `ol:`, the lines of a channel `od:`, one for each priority. `out:` are a channel's open messages, `unk:` those in doubt, `bgn:` those begun.
-- `rep:` are a channel's open replies and `dbt:` its messages in doubt, which are counted apart when it is asked for room.
-- `pid:` leads from a provider's name to its message; `es:` is what was heard of a name that nobody has yet, and `early:` are those names.
local SENDING, UNKNOWN, SENT, FAILED = 1, 2, 3, 4

local function first_of(lane)
  if not is_own(lane) then return redis.call('ZRANGE', key('oli', lane), 0, 0)[1] or false end
  local seq = string.sub(lane, 2)
  local open = redis.call('HMGET', key('m', seq), 'lane', 'due')
  return open[1] == lane and open[2] and seq
end

local function line_of(seq)
  local of = redis.call('HMGET', key('m', seq), 'channel', 'priority')
  return key('od', of[2] .. ':' .. of[1])
end

local function leave_outbox_line(lane)
  local head = first_of(lane)
  if head then redis.call('ZREM', line_of(head), wide(head) .. lane) end
end

local function enter_outbox_line(lane)
  local head = first_of(lane)
  if not head then return end
  local due = redis.call('HGET', key('ol', lane), 'until') or redis.call('HGET', key('m', head), 'due')
  redis.call('ZADD', line_of(head), due, wide(head) .. lane)
end

-- Takes note of a status; of several times the earliest is kept.
local function hear(row, status, at_ms)
  local known = redis.call('HGET', row, 's' .. status)
  if not known or tonumber(known) > at_ms then redis.call('HSET', row, 's' .. status, at_ms) end
end

local function out_join(seq, lane)
  leave_outbox_line(lane)
  redis.call('HSET', key('m', seq), 'lane', lane)
  if not is_own(lane) then redis.call('ZADD', key('oli', lane), score(seq), seq) end
  enter_outbox_line(lane)
end

local function out_quit(seq, lane)
  leave_outbox_line(lane)
  redis.call('HDEL', key('m', seq), 'lane')
  if not is_own(lane) then redis.call('ZREM', key('oli', lane), seq) end
  enter_outbox_line(lane)
end

-- Counts an open message where it belongs: with the replies, with those in doubt, or with the rest.
local function count_open(seq, unknown)
  local of = redis.call('HMGET', key('m', seq), 'channel', 'priority')
  redis.call(unknown and 'SADD' or 'SREM', key('dbt', of[1]), seq)
  redis.call(of[2] == '0' and not unknown and 'SADD' or 'SREM', key('rep', of[1]), seq)
end

-- It leaves the outbox, and may be purged.
local function end_open(seq)
  local row = key('m', seq)
  local of = redis.call('HMGET', row, 'lane', 'channel', 'created')
  out_quit(seq, of[1])
  redis.call('HDEL', row, 'attempt', 'due', 'begun', 'unknown')
  redis.call('ZREM', key('out', of[2]), seq)
  redis.call('SREM', key('rep', of[2]), seq)
  redis.call('SREM', key('dbt', of[2]), seq)
  redis.call('ZREM', key('unk'), seq)
  redis.call('SREM', key('bgn'), seq)
  redis.call('ZADD', key('mc', of[2]), of[3], seq)
end

-- A send in doubt whose provider id was heard of meanwhile has been sent.
local function settle_by_known_id(seq, at_ms)
  local row = key('m', seq)
  local of = redis.call('HMGET', row, 'begun', 'provider_id')
  if not (of[1] and of[2]) then return false end
  hear(row, SENT, at_ms)
  redis.call('HDEL', row, 'why')
  end_open(seq)
  return true
end

-- Learns what the provider calls a message, and takes over the statuses that came before.
local function name_message(seq, provider_id)
  local row = key('m', seq)
  local before = redis.call('HGET', row, 'provider_id')
  if before and before ~= provider_id then
    local names = redis.call('HGET', row, 'names')
    names = names and cmsgpack.unpack(names) or {}
    names[#names + 1] = before
    redis.call('HSET', row, 'names', cmsgpack.pack(names))
  end
  redis.call('HSET', row, 'provider_id', provider_id)
  redis.call('HSET', key('pid'), provider_id, seq)
  local early = redis.call('HGETALL', key('es', provider_id))
  for n = 1, #early, 2 do hear(row, string.sub(early[n], 2), tonumber(early[n + 1])) end
  redis.call('DEL', key('es', provider_id))
  redis.call('ZREM', key('early'), provider_id)
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

-- Puts a message back into its thread's lane, certainly unsent.
local function requeue(seq, due, why)
  local row = key('m', seq)
  local of = redis.call('HMGET', row, 'lane', 'home')
  out_quit(seq, of[1])
  redis.call('HSET', row, 'due', due)
  if why then redis.call('HSET', row, 'why', why) else redis.call('HDEL', row, 'why') end
  redis.call('HDEL', row, 'begun', 'unknown')
  redis.call('SREM', key('bgn'), seq)
  redis.call('ZREM', key('unk'), seq)
  count_open(seq, false)
  out_join(seq, of[2])
end

local function take_message()
  return {
    channel = take(), peer = take(), request_id = take(), fingerprint = take(), text = maybe(), preview = maybe(),
    payload = take(), priority = take(), reply_to = maybe(), send_at = maybe_number(),
  }
end

-- `N` a new message, `R` the same request again, `M` its id with another content.
local function submit(new)
  local known = redis.call('HGET', key('rq'), new.request_id)
  if known then
    local of = redis.call('HMGET', key('m', known), 'fingerprint', 'created', 'call')
    local same = of[1] == new.fingerprint and 'R' or 'M'
    return { of[3] == ARGV[2] and 'N' or same, known, tonumber(of[2]) }
  end
  local seq, thread = next_seq(), thread_of(new.peer)
  local row, home = key('m', seq), lane_of(new.channel, thread)
  local held = new.send_at and new.send_at > now
  redis.call('HSET', row, 'channel', new.channel, 'peer', new.peer, 'request_id', new.request_id, 'fingerprint', new.fingerprint,
    'payload', new.payload, 'priority', new.priority, 'created', now, 'thread', thread, 'home', home, 'call', ARGV[2],
    's0', now, 'attempt', 0, 'due', held and new.send_at or now)
  if new.text then redis.call('HSET', row, 'text', new.text) end
  if new.reply_to then redis.call('HSET', row, 'reply_to', new.reply_to) end
  redis.call('HSET', key('rq'), new.request_id, seq)
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
  return waiting(new.channel, new.priority == '0') >= most and not redis.call('HGET', key('rq'), new.request_id)
end

-- Of an answer's replies, all are queued or none: this says whether one of them finds no room.
local function find_no_room(replies, most)
  for _, new in ipairs(replies) do
    if is_full_for(new, most) then return true end
  end
  return false
end
