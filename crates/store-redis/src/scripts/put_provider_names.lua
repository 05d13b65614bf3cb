-- Takes over what providers call messages, and what was heard of names that nobody has yet.
local function own(name, seq)
  redis.call('HSET', key('pid'), name, seq)
  local of = redis.call('HMGET', key('m', seq), 'provider_id', 'names')
  if of[1] == name then return end
  local names = of[2] and cmsgpack.unpack(of[2]) or {}
  names[#names + 1] = name
  redis.call('HSET', key('m', seq), 'names', cmsgpack.pack(names))
end

local function hear_early(name, heard)
  for _ = 1, number() do redis.call('HSET', key('es', name), 's' .. take(), take()) end
  redis.call('ZADD', key('early'), heard, name)
end

return once(function()
  for _ = 1, number() do
    local name, seq = take(), maybe()
    if seq then own(name, seq) else hear_early(name, number()) end
  end
  return 'D'
end)
