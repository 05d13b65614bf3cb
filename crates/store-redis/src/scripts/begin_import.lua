-- Marks an empty store as being filled. Answers `D` done, `H` half filled, `N` not empty. KEYS[1] is the root of the registry.
local mark = take()
local by = redis.call('HGET', key('settings'), mark)
if by then return by == ARGV[2] and 'D' or 'H' end
if redis.call('EXISTS', key('settings'), key('regs'), key('fs'), key('claims'), key('accounts')) > 0 then return 'N' end
redis.call('HSET', key('settings'), mark, ARGV[2])
return 'D'
