-- Looks at claims by name, and draws fences for what may come of them. Answers the time, how many claims there are, the last fence that was
-- drawn, and each claim with its result. KEYS[1] is the root of the registry.
local fences, names = number(), number()
local last = '0'
if fences > 0 then
  redis.call('HINCRBY', key('claim_meta'), 'fence', fences)
  last = redis.call('HGET', key('claim_meta'), 'fence')
end
local found = {}
for n = 1, names do
  local name = take()
  local record = redis.call('GET', key('claim', name))
  found[n] = { record, record and redis.call('GET', key('result', name)) }
end
return { string.format('%.0f', now), redis.call('ZCARD', key('claims')), last, found }
