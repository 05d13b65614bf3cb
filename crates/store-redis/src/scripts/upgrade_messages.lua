-- Looks at some messages in the outbox, as layout 1 left them; answers where to go on, 0 at the end. They are counted, which they were not. A retry
-- left the former name on a message that waits to be sent anew: that name is of a round that is over.
local channel, from = take(), number()
local seqs = redis.call('ZRANGE', key('out', channel), from, from + 199)
for _, seq in ipairs(seqs) do
  local row, state = key('m', seq), outgoing(seq)
  if state.place then count_open(seq, state.place.unknown) end
  if state.provider_id and not (state.place and state.place.begun) then
    put_aside(state.past, { provider_id = state.provider_id, steps = '' })
    redis.call('HSET', row, 'past', write_past(state.past))
    redis.call('HDEL', row, 'provider_id')
  end
end
return #seqs == 200 and from + 200 or 0
