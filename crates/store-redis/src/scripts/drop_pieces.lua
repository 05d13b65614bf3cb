-- Removes some pieces of a name; answers whether there are more. KEYS[1] is the root of the registry.
local name, most = take(), number()
for _, n in ipairs(redis.call('HKEYS', key('f', name))) do
  if most == 0 then return 1 end
  drop_piece(name, n)
  most = most - 1
end
return 0
