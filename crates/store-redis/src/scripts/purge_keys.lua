-- Forgets keys after their window, of this account or of those that were moved here, and the account's statuses that came early when the last
-- of them is older than the longest retention. Answers how many keys, whether there may be more, and how many are left.
local most, keep = number(), maybe_number()
local ended = redis.call('ZRANGEBYSCORE', key('keys'), '-inf', now, 'LIMIT', 0, most)
for _, one in ipairs(ended) do
  redis.call('DEL', key('k', one))
  redis.call('ZREM', key('keys'), one)
end
local early = keep and redis.call('ZRANGEBYSCORE', key('early'), '-inf', now - keep, 'LIMIT', 0, most) or {}
for _, one in ipairs(early) do
  redis.call('DEL', key('es', one))
  redis.call('ZREM', key('early'), one)
end
return { #ended, (#ended == most or #early == most) and 1 or 0, redis.call('ZCARD', key('keys')) }
