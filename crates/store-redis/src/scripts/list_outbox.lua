-- Messages of one channel in the outbox, or only those in doubt, oldest first, not below an id, or above a number. Looks at a bounded
-- stretch: answers with what was found there, and with the number to go on from.
local channel, unknown, at_s, bound, most = take(), take() == '1', maybe_number(), maybe(), number()
local line, LOOKED = unknown and key('unk') or key('out', channel), 1000

local function time_of(seq) return redis.call('HGET', key('m', seq), 'created') end

local function how_many_before()
  if at_s then return rank_of_id(line, time_of, at_s, bound) end
  if bound then return rank(line, function(one) return not is_below(bound, one) end) end
  return 0
end

local looked = how_many_before()
local rows, last = {}, false
for _, seq in ipairs(redis.call('ZRANGE', line, looked, looked + LOOKED - 1)) do
  if #rows == most then break end
  last, looked = seq, looked + 1
  local of = redis.call('HGET', key('m', seq), 'channel')
  if of == channel and not (unknown and is_leased(seq)) then rows[#rows + 1] = tell_message(seq) end
end
return { rows, looked < redis.call('ZCARD', line) and last }
