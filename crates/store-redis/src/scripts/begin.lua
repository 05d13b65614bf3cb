-- Records that sending begins now. Answers `D` done or `L` lost, also where the provider has named the message meanwhile.
local seq, fence = take(), take()
return once(function()
  if not lane_held(seq, fence) then return 'L', true end
  local state = outgoing(seq)
  if state.provider_id then return 'L', true end
  work_off()
  begin_try(state)
  keep(seq, state)
  return 'D'
end)
