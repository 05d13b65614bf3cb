-- Puts a claim as it was in another store; fences drawn from now on are above its own. KEYS[1] is the root of the registry.
local name, record, result, ends, held_until = take(), take(), maybe(), maybe(), maybe()
put_claim(name, record, result, ends, held_until)
local fence, last = string.sub(record, 9, 27), redis.call('HGET', key('claim_meta'), 'fence') or '0'
if string.rep('0', 19 - #last) .. last < fence then redis.call('HSET', key('claim_meta'), 'fence', (string.gsub(fence, '^0+', ''))) end
return 1
