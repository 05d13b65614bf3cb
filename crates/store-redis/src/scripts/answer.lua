-- What the target answered to an event, or nothing.
local seq, at_s = take(), number()
local event = redis.call('GET', key('e', seq))
event = event and cmsgpack.unpack(event)
if not event or not event[3] or second(event[1]) ~= at_s then return false end
local of = redis.call('HMGET', key('an', event[3]), 'status', 'content_type', 'body')
return of[1] and of
