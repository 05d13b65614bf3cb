-- The inbox. An item is `i:`, with its events, its webhook `w`, its place (`L` in a lane, `P` parked, `Q` quarantined) and its lane.
-- A lane is the thread's, `li:`, or `#` and the number of its only item. Its lease is `l:`. The lines `due:` hold a channel's lanes by
-- when they may be taken, and then by their first item. `tn:` is the item of a lane that what comes next may become part of; the webhooks of its
-- further events are `more`.
local function lane_of(channel, peer) return #channel .. ':' .. channel .. peer end

-- Whose lane it is; nobody's when it is that of one item.
local function peer_of(lane, channel) return not is_own(lane) and string.sub(lane, #lane_of(channel, '') + 1) end

local function head_of(lane)
  if not is_own(lane) then return lowest(INBOX, lane) end
  local seq = string.sub(lane, 2)
  return redis.call('HGET', key('i', seq), 'place') == 'L' and seq
end

-- Whoever changes the first item of a lane takes the lane out of the line before, and puts it back after.
local function leave_line(lane, channel)
  lane = speaker(INBOX, lane)
  local head = head_of(lane)
  if head then redis.call('ZREM', key('due', channel), wide(head) .. lane) end
end

local function enter_line(lane, channel)
  lane = speaker(INBOX, lane)
  local head = head_of(lane)
  if not head then return end
  local due = leased_until(INBOX, lane) or redis.call('HGET', key('i', head), 'due')
  redis.call('ZADD', key('due', channel), due, wide(head) .. lane)
end

local function close_turn(lane)
  if not is_own(lane) then redis.call('DEL', key('tn', lane)) end
end

local function join_lane(lane, channel, seq)
  lane = speaker(INBOX, lane)
  close_turn(lane)
  leave_line(lane, channel)
  redis.call('HSET', key('i', seq), 'place', 'L', 'lane', lane)
  if not is_own(lane) then redis.call('ZADD', key('li', lane), score(seq), seq) end
  redis.call('ZADD', key('way', channel), score(seq), seq)
  enter_line(lane, channel)
end

local function quit_lane(lane, channel, seq, place)
  local speaks = speaker(INBOX, lane)
  leave_line(speaks, channel)
  redis.call('HSET', key('i', seq), 'place', place)
  if not is_own(lane) then redis.call('ZREM', key('li', lane), seq) end
  redis.call('ZREM', key('way', channel), seq)
  tidy(INBOX, lane)
  enter_line(speaks, channel)
end

-- Makes the lanes of two names of one person one, if anything waits in the first.
local function join_names(channel, name, peer)
  local from, into = speaker(INBOX, lane_of(channel, name)), speaker(INBOX, lane_of(channel, peer))
  if from == into or not head_of(from) then return end
  close_turn(from)
  close_turn(into)
  leave_line(from, channel)
  leave_line(into, channel)
  speak_for(INBOX, into, from)
  enter_line(into, channel)
end

local function add_item(seq, channel, webhook, event)
  redis.call('HSET', key('i', seq), 'channel', channel, 'webhook', webhook, 'events', event, 'attempt', 0, 'received', now, 'due', now)
  redis.call('HINCRBY', key('w', webhook), 'open', 1)
end

-- Done with: it is gone, and its webhook may be purged when this was the last.
local function end_item(seq, channel)
  local of = redis.call('HMGET', key('i', seq), 'webhook', 'more')
  redis.call('DEL', key('i', seq))
  for _, webhook in ipairs({ of[1], unpack(split(of[2] or '')) }) do
    if redis.call('HINCRBY', key('w', webhook), 'open', -1) == 0 then
      redis.call('ZADD', key('wc', channel), redis.call('HGET', key('w', webhook), 'received'), webhook)
    end
  end
end

-- Replies that found no room, as scripts send them and as others read them.
local function keep_replies(seq, replies, bytes)
  redis.call('HSET', key('i', seq), 'kept', cmsgpack.pack(replies), 'replies', bytes)
end

-- As `is_told` says: the first hundred, then ever fewer, and those that ended the item.
local function is_told(attempt, outcome)
  local step = 1
  while attempt / step > 100 do step = step * 10 end
  return attempt % step == 0 or outcome == 'delivered' or outcome == 'parked'
end

local function log_attempt(seq, lease, outcome, detail)
  local of = redis.call('HMGET', key('i', seq), 'received', 'attempt')
  if not is_told(tonumber(of[2]), outcome) then return end
  local row = { tonumber(of[1]), tonumber(of[2]), lease.fence, lease.worker, tonumber(lease.leased), now, outcome, detail }
  redis.call('RPUSH', key('at', seq), cmsgpack.pack(row))
end
