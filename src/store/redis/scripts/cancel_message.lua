-- Takes a message out of the outbox. Answers `D` done, `N` not found, `L` too late.
local seq, at_s = take(), number()
local row = key('m', seq)
return once(function()
  local of = redis.call('HMGET', row, 'created', 'lane', 'unknown')
  if not of[1] or second(of[1]) ~= at_s then return 'N', true end
  if not of[2] or is_leased(seq) then return 'L', true end
  work_off()
  end_open(seq)
  if of[3] then
    redis.call('HSET', row, 'why', 'given up while in doubt')
  else
    hear(row, FAILED, now)
    redis.call('HSET', row, 'why', 'cancelled')
  end
  return 'D'
end)
