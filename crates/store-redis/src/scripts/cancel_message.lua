-- Takes a message out of the outbox. Answers `D` done, `N` not found, `L` too late.
local seq, at_s = take(), number()
return once(function()
  local created = redis.call('HGET', key('m', seq), 'created')
  if not created or second(created) ~= at_s then return 'N', true end
  local state = outgoing(seq)
  if not state.place or is_leased(seq) or state.provider_id then return 'L', true end
  work_off()
  remember_begun(state)
  if in_doubt(state) then
    end_as(state, UNKNOWN, 'given up while in doubt', now)
  else
    end_as(state, FAILED, 'cancelled', now)
  end
  keep(seq, state)
  return 'D'
end)
