-- Puts a register in the place of what is expected there; answers with what is there now. KEYS[1] is the root of the registry.
local name, expected, new, keep = take(), maybe(), maybe(), maybe_number()
if look_up(name) == expected then
  if new then put(name, new, keep and now + keep) elseif expected then forget(name) end
end
return look_up(name)
