-- Claims with fences below one, the highest first, or above one, the lowest first; without results, or with them. Answers their records.
-- KEYS[1] is the root of the registry.
local before, after, most, with_results = take(), take(), number(), number() == 1
local line
if after == '' then
  line = redis.call('ZREVRANGEBYLEX', key('claims'), before == '' and '+' or '(' .. before, '-', 'LIMIT', 0, most)
else
  line = redis.call('ZRANGEBYLEX', key('claims'), '(' .. after .. '\255', '+', 'LIMIT', 0, most)
end
local rows = {}
for n, member in ipairs(line) do
  local name = string.sub(member, 20)
  rows[n] = { redis.call('GET', key('claim', name)), with_results and redis.call('GET', key('result', name)) }
end
return rows
