-- Pieces from a place in their line on: name, number, end, bytes. KEYS[1] is the root of the registry.
local from, most = number(), number()
local line = redis.call('ZRANGE', key('fs'), from, from + most - 1, 'WITHSCORES')
local rows = {}
for at = 1, #line, 2 do
  local n, name = tonumber(string.sub(line[at], 1, 10)), string.sub(line[at], 11)
  rows[#rows + 1] = { name, n, line[at + 1], redis.call('HGET', key('f', name), n) }
end
return rows
