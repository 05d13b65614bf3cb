-- Ends a try: `S` sent, `F` failed, `R` retry, `A` sent again in doubt, `U` unknown, `G` found in the provider's history, `H` handed back.
-- Answers `D` done or `L` lost.
local seq, fence, outcome = take(), take(), take()

-- Of what a look-up found, the first that no other message is called, nor this one was in a round that is over, or that nothing was found.
local function match(past)
  local found = {}
  for n = 1, number() do found[n] = take() end
  local why, check = take(), maybe_number()
  for _, name in ipairs(found) do
    local owner = redis.call('HGET', key('pid'), name)
    if (not owner or owner == seq) and not was_called(past, name) then return 'S', name end
  end
  return 'U', why, check
end

local function take_outcome(past)
  if outcome == 'G' then return match(past) end
  if outcome == 'R' then
    local wait, why = number(), take()
    return 'R', why, wait, number()
  end
  if outcome == 'A' then
    local wait = number()
    return 'A', take(), wait
  end
  if outcome == 'U' then
    local why = take()
    return 'U', why, maybe_number()
  end
  if outcome == 'H' then return 'H', false, number() end
  return outcome, take()
end

local LOGGED = { S = 'sent', F = 'failed', R = 'retry', A = 'unknown', U = 'unknown' }

return once(function()
  local lane, lease = lane_held(seq, fence)
  if not lane then return 'L', true end
  redis.call('DEL', key('ol', lane))
  local state = outgoing(seq)
  local kind, detail, wait, charged = take_outcome(state.past)
  if LOGGED[kind] then log_try(lease, LOGGED[kind], detail) end
  settle(seq, state, kind, detail, wait, charged)
  keep(seq, state)
  enter_outbox_line(lane)
  announce()
  return 'D'
end)
