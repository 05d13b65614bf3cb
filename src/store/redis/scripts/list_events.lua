-- Events of one channel of this account, newest first, below an id or a number. Looks at a bounded stretch: answers with what was found
-- there, and with the number to go on from.
local channel, kind, peer, at_s, below, most = take(), maybe(), maybe(), maybe_number(), maybe_number(), number()
local line, LOOKED = key('ev', channel), 1000

local function time_of(seq) return cmsgpack.unpack(redis.call('GET', key('e', seq)))[1] end

if at_s then below = seek(line, time_of, at_s, below) end
local from = below and '(' .. below or '+inf'
local seqs = redis.call('ZREVRANGEBYSCORE', line, from, '-inf', 'LIMIT', 0, LOOKED)
local rows, last = {}, false
for _, seq in ipairs(seqs) do
  if #rows == most then break end
  last = tonumber(seq)
  local event = cmsgpack.unpack(redis.call('GET', key('e', seq)))
  if (not kind or event[5] == kind) and (not peer or event[7] == peer) then rows[#rows + 1] = tell_event(seq, event) end
end
-- The last number looked at is there as long as there may be more below it.
local more = #seqs == LOOKED or (last and tonumber(seqs[#seqs]) < last)
return { rows, more and last }
