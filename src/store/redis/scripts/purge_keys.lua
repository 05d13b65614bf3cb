-- Forgets keys after their window, of this account or of those that were moved here. Answers how many, whether there may be more, and
-- how many are left.
local most = number()
local ended = redis.call('ZRANGEBYSCORE', key('keys'), '-inf', now, 'LIMIT', 0, most)
for _, one in ipairs(ended) do
  redis.call('DEL', key('k', one))
  redis.call('ZREM', key('keys'), one)
end
return { #ended, #ended == most and 1 or 0, redis.call('ZCARD', key('keys')) }
