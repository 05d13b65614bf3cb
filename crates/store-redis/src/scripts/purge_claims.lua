-- Forgets claims that are over; answers how many. KEYS[1] is the root of the registry.
local over = redis.call('ZRANGEBYSCORE', key('claim_ends'), '-inf', now, 'LIMIT', 0, number())
for _, name in ipairs(over) do drop_claim(name) end
return #over
