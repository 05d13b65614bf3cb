-- Ends a try after its lease, as `Outgoing::takes_late` and `Outgoing::settle_late` of `domain` say: `S` sent, `F` failed, `R` retry.
-- Answers `D` done, `N` not found, `L` too late.
local seq, at_s, attempt, kind = take(), number(), number(), take()

return once(function()
  local created = redis.call('HGET', key('m', seq), 'created')
  if not created or second(created) ~= at_s then return 'N', true end
  local state, leased = outgoing(seq), is_leased(seq)
  local place = state.place
  local is_this_try = place and place.attempt == attempt and place.begun
  if not is_this_try or state.provider_id or (leased and kind ~= 'S') then return 'L', true end
  work_off()
  local detail, wait, charged = take(), maybe_number(), maybe_number()
  if leased then
    call_message(seq, state, detail)
  else
    place.unknown = false
    if state.past.doubt == attempt then state.past.doubt = nil end
    settle(seq, state, kind, detail, wait, charged)
  end
  keep(seq, state)
  announce()
  return 'D'
end)
