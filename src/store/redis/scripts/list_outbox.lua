-- Messages of one channel in the outbox, or only those in doubt, oldest first, above an id or a number. Looks at a bounded stretch.
local channel, unknown, at_s, above, most = take(), take() == '1', maybe_number(), maybe_number(), number()
local line, LOOKED = unknown and key('unk') or key('out', channel), 1000

local function time_of(seq) return redis.call('HGET', key('m', seq), 'created') end

local from = above and '(' .. above or '-inf'
if at_s then from = seek(line, time_of, at_s, above) end
if not from then return { {}, false } end
local seqs = redis.call('ZRANGEBYSCORE', line, from, '+inf', 'LIMIT', 0, LOOKED)
local rows, last = {}, false
for _, seq in ipairs(seqs) do
  if #rows == most then break end
  last = tonumber(seq)
  local of = redis.call('HGET', key('m', seq), 'channel')
  if of == channel and not (unknown and is_leased(seq)) then rows[#rows + 1] = tell_message(seq) end
end
local more = #seqs == LOOKED or (last and tonumber(seqs[#seqs]) > last)
return { rows, more and last }
