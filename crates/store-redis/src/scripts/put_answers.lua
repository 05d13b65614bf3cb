-- Takes over what the target answered to events.
for _ = 1, number() do
  local event, status, content_type, body = cmsgpack.unpack(redis.call('GET', key('e', take()))), take(), maybe(), take()
  if event[3] then
    redis.call('HSET', key('an', event[3]), 'status', status, 'body', body)
    if content_type then redis.call('HSET', key('an', event[3]), 'content_type', content_type) end
  end
end
return 'D'
