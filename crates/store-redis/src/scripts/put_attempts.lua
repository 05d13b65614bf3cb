-- Takes over ended attempts at items (`i`) and at messages (`m`), in the order of their fences: those of leases that were not moved come first.
local function fence_of(row, place) return tostring(cmsgpack.unpack(row)[place]) end

local function is_higher(a, b) return #a > #b or (#a == #b and a > b) end

local function insert(list, row, place)
  local fence = fence_of(row, place)
  for _, other in ipairs(redis.call('LRANGE', list, 0, -1)) do
    if is_higher(fence_of(other, place), fence) then return redis.call('LINSERT', list, 'BEFORE', other, row) end
  end
  redis.call('RPUSH', list, row)
end

local function put()
  local queue, of, item, made, attempt, fence = take(), take(), take(), number(), number(), take()
  local worker, leased, ended, outcome, detail = take(), number(), number(), take(), take()
  if queue == 'm' then
    return insert(key('mt', of), cmsgpack.pack({ attempt, fence, worker, leased, ended, outcome, detail }), 2)
  end
  insert(key('at', item), cmsgpack.pack({ made, attempt, fence, worker, leased, ended, outcome, detail }), 3)
  if cmsgpack.unpack(redis.call('GET', key('e', of)))[3] ~= item then is_replay(of, item) end
end

return once(function()
  for _ = 1, number() do put() end
  return 'D'
end)
