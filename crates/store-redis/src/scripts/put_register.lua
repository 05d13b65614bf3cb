-- Puts a register as it was in another store. KEYS[1] is the root of the registry.
local name, value, ends = take(), take(), maybe_number()
put(name, value, ends)
return 1
