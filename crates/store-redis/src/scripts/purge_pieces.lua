-- Forgets pieces whose time is over; answers how many. KEYS[1] is the root of the registry.
local over = redis.call('ZRANGEBYSCORE', key('fs'), '-inf', now, 'LIMIT', 0, number())
for _, one in ipairs(over) do drop_piece(string.sub(one, 11), tonumber(string.sub(one, 1, 10))) end
return #over
