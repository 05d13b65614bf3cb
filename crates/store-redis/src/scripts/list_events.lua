-- Events of one channel of this account, newest first, below an id or a number. Looks at a bounded stretch: answers with what was found
-- there, and with the number to go on from.
local channel, kind, peer, at_s, below, most = take(), maybe(), maybe(), maybe_number(), maybe(), number()
local line, LOOKED = key('ev', channel), 1000

local function time_of(seq) return cmsgpack.unpack(redis.call('GET', key('e', seq)))[1] end

local function how_many_below()
  if at_s then return rank_of_id(line, time_of, at_s, below) end
  if below then return rank(line, function(one) return is_below(one, below) end) end
  return redis.call('ZCARD', line)
end

local left = how_many_below()
local from = math.max(0, left - LOOKED)
local seqs = left > 0 and redis.call('ZRANGE', line, from, left - 1) or {}
local rows, last = {}, false
for n = #seqs, 1, -1 do
  if #rows == most then break end
  last, left = seqs[n], left - 1
  local event = cmsgpack.unpack(redis.call('GET', key('e', last)))
  if (not kind or event[5] == kind) and (not peer or event[7] == peer) then rows[#rows + 1] = tell_event(last, event) end
end
return { rows, left > 0 and last }
