-- Registers that end some time, from a place in their line on. Answers how many were looked at, and those that are not over.
local from, most = number(), number()
local line = redis.call('ZRANGE', key('regs'), from, from + most - 1, 'WITHSCORES')
local rows = {}
for n = 1, #line, 2 do
  if tonumber(line[n + 1]) > now then rows[#rows + 1] = { line[n], line[n + 1], redis.call('GET', key('reg', line[n])) } end
end
return { #line / 2, rows }
