-- Forgets keys of this account after their window, and statuses that came early when the last of them is older than the longest retention.
-- Answers how many keys, and whether there may be more.
local most, keep = number(), maybe_number()
local ended = redis.call('ZRANGEBYSCORE', key('keys'), '-inf', now, 'LIMIT', 0, most)
for _, one in ipairs(ended) do
  redis.call('DEL', key('k', one))
  redis.call('ZREM', key('keys'), one)
end
local early = keep and redis.call('ZRANGEBYSCORE', key('eh'), '-inf', now - keep, 'LIMIT', 0, most) or {}
for _, one in ipairs(early) do
  redis.call('DEL', key('es', one))
  redis.call('ZREM', key('eh'), one)
end
return { #ended, (#ended == most or #early == most) and 1 or 0 }
