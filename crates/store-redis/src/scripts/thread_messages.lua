-- What was said in a thread, newest first, back to the first that was purged; `e` or `m`, number and second of the entry to start below.
local thread, most, kind, seq, at_s = find_thread(take()), number(), take(), take(), take()

local read_to = redis.call('HGET', key('t', thread), 'read_to')

-- The entry as it is told, or `false`.
local function tell(entry)
  local entry_kind, of = string.sub(entry, 1, 1), string.sub(entry, 2)
  if entry_kind == 'm' then
    local row = redis.call('HMGET', key('m', of), 'created', 'channel', 'text', 'provider_id', 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7')
    return row[1] and { 'm', of, unpack(row) }
  end
  local event = redis.call('GET', key('e', of))
  if not event then return false end
  event = cmsgpack.unpack(event)
  local is_read = read_to and not is_below(read_to, of)
  return { 'e', of, event[1], event[4], event[10], event[6], event[8] and 1 or 0, is_read and 1 or 0 }
end

local line = key('te', thread)
local cut = redis.call('HGET', key('t', thread), 'cut')
local first = cut and rank(line, function(entry) return not is_below(cut, string.sub(entry, 2)) end) or 0
local last = redis.call('ZCARD', line)
if kind ~= '' then
  local before = tell(kind .. seq)
  if not before or second(before[3]) ~= tonumber(at_s) then return {} end
  last = rank(line, function(entry) return is_below(string.sub(entry, 2), seq) end)
end
first = math.max(first, last - most)
local rows = {}
if first < last then
  local entries = redis.call('ZRANGE', line, first, last - 1)
  for n = #entries, 1, -1 do rows[#rows + 1] = tell(entries[n]) end
end
return rows
