-- Items of one line of this account (on their way, parked or quarantined), oldest first, not below an id.
local line, at_s, from, most = key(take(), take()), maybe_number(), maybe(), number()

local function time_of(seq) return redis.call('HGET', key('i', seq), 'received') end

local skip = at_s and rank_of_id(line, time_of, at_s, from) or 0
local rows = {}
for n, seq in ipairs(redis.call('ZRANGE', line, skip, skip + most - 1)) do rows[n] = tell_item(seq) end
return rows
