-- Sends a failed message, or one in doubt, once more. Answers `D` done, `N` not found, `L` too late.
local seq, at_s = take(), number()

return once(function()
  local created = redis.call('HGET', key('m', seq), 'created')
  if not created or second(created) ~= at_s then return 'N', true end
  local state = outgoing(seq)
  local past, failed = state.past, not state.place and status_of(state.steps) == FAILED
  local doubted = state.place and state.place.unknown
  if not (failed or doubted) or is_leased(seq) or #past.rounds >= ROUNDS_MAX then return 'L', true end
  local attempt = attempt_of(state)
  if doubted then past.doubt = past.doubt or attempt end
  put_aside(past, { provider_id = state.provider_id, steps = write_steps(state.steps), why = state.why })
  state.steps, state.provider_id = { [QUEUED] = now }, nil
  state.why = past.doubt and 'try ' .. past.doubt .. ' may have gone out' or nil
  state.place = { attempt = attempt, failures = 0, due = now, unknown = false }
  keep(seq, state)
  announce()
  return 'D'
end)
