-- Pages of an export. Nobody changes the store meanwhile, so a page goes on where the last one stopped counting.
local skip, most = number(), number()
local ROOM = 1000000

-- A page of a line: what `tell` says of each, and where to go on. Ends early when it has become too much to say at once.
local function page(line, tell)
  local rows, bytes, looked = {}, 0, 0
  for _, one in ipairs(redis.call('ZRANGE', line, skip, skip + most - 1)) do
    looked = looked + 1
    local row, more = tell(one)
    if row then rows[#rows + 1] = row end
    bytes = bytes + (more or 0)
    if bytes > ROOM then break end
  end
  local next = skip + looked
  return { rows, next < redis.call('ZCARD', line) and next }
end
