-- Forgets registers that are over; answers how many. KEYS[1] is the root of the registry.
local over = redis.call('ZRANGEBYSCORE', key('regs'), '-inf', now, 'LIMIT', 0, number())
for _, name in ipairs(over) do forget(name) end
return #over
