-- The lane that a recorded event waits in when it comes again: that of whom its peer is now.
local function lane_again(event, channel, seq)
  if not (event[14] and event[7]) then return '#' .. seq end
  local thread = thread_of(event[7])
  if thread ~= event[7] then join_names(channel, event[7], thread) end
  return lane_of(channel, thread)
end
