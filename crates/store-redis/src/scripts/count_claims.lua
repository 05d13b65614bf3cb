-- How many claims there are: all, those that are held, those of them whose lease is over, and values. KEYS[1] is the root of the registry.
return {
  redis.call('ZCARD', key('claims')), redis.call('ZCARD', key('claim_held')), redis.call('ZCOUNT', key('claim_held'), '-inf', now),
  tonumber(redis.call('HGET', key('claim_meta'), 'values') or 0)
}
