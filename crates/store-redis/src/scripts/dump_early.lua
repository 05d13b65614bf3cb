-- What was heard of names that nobody has yet.
return page(key('early'), function(name)
  local heard = redis.call('ZSCORE', key('early'), name)
  local of = redis.call('HMGET', key('es', name), 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7')
  if redis.call('EXISTS', key('es', name)) == 1 then return { name, heard, unpack(of) } end
end)
