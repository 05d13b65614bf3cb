-- Forgets keys of this account after their window. Answers how many, and whether there may be more.
local most = number()
local ended = redis.call('ZRANGEBYSCORE', key('keys'), '-inf', now, 'LIMIT', 0, most)
for _, one in ipairs(ended) do
  redis.call('DEL', key('k', one))
  redis.call('ZREM', key('keys'), one)
end
return { #ended, #ended == most and 1 or 0 }
