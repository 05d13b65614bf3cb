-- Records that sending begins now.
local seq, fence = take(), take()
return once(function()
  if not lane_held(seq, fence) then return 'L', true end
  work_off()
  redis.call('HSET', key('m', seq), 'begun', now)
  redis.call('SADD', key('bgn'), seq)
  hear(key('m', seq), SENDING, now)
  return 'D'
end)
