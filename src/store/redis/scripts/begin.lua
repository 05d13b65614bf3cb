-- Records that sending begins now.
local seq, fence = take(), take()
return once(function()
  if not lane_held(seq, fence) then return 'L', true end
  work_off()
  local state = outgoing(seq)
  begin_try(state)
  keep(seq, state)
  return 'D'
end)
