-- Gives an account its number, once, and writes down that it is in a channel, if one is named. Answers with the number, and with the highest
-- that was moved into this store. KEYS[1] is the root of the registry.
local account, channel, most = take(), take(), number()
local known = redis.call('HGET', key('accounts'), account)
if not known then
  if redis.call('HLEN', key('accounts')) >= most then return redis.error_reply('HAPAX too many accounts') end
  known = tostring(redis.call('HLEN', key('accounts')) + 1)
  redis.call('HSET', key('accounts'), account, known)
end
if channel ~= '' then
  redis.call('SADD', key('places'), known .. ':' .. channel)
  -- The name of this call tells this state of the registry from every other, also from those that the server has lost.
  redis.call('HSET', key('meta'), 'version', ARGV[2])
end
return { known, redis.call('HGET', key('meta'), 'moved_to') }
