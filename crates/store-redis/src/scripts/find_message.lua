-- The message that the provider calls so, and when it was made, or nothing.
local seq = redis.call('HGET', key('pid'), take())
return seq and { seq, redis.call('HGET', key('m', seq), 'created') }
