-- Items of one line of this account (on their way, parked or quarantined), oldest first, above an id.
local line, at_s, above, most = key(take(), take()), maybe_number(), maybe_number(), number()

local function time_of(seq) return redis.call('HGET', key('i', seq), 'received') end

local from = '-inf'
if at_s then from = seek(line, time_of, at_s, above) end
local rows = {}
if from then
  for n, seq in ipairs(redis.call('ZRANGEBYSCORE', line, from, '+inf', 'LIMIT', 0, most)) do rows[n] = tell_item(seq) end
end
return rows
