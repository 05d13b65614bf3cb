-- Writes claims, if each of them is still as it was seen; else nothing. Nor where a key was seen free and a claim with a higher fence than its
-- own is gone since: that may have been this key's. Answers 1 or 0. KEYS[1] is the root of the registry.
local changes = {}
for n = 1, number() do
  local name, seen, record, result, ends, held_until = take(), take(), take(), maybe(), maybe(), maybe()
  changes[n] = { name, seen, record, result, ends, held_until }
end
return once(function()
  for _, change in ipairs(changes) do
    local is_new = change[2] == '' and change[3] ~= ''
    if redis.call('GETRANGE', key('claim', change[1]), 0, 7) ~= change[2] then return 0, true end
    if is_new and string.sub(change[3], 9, 27) < highest_gone() then return 0, true end
  end
  for _, change in ipairs(changes) do
    if change[3] == '' then drop_claim(change[1]) else put_claim(change[1], change[3], change[4], change[5], change[6]) end
  end
  return 1
end)
