-- What was said in a thread, newest first, back to the first that was purged; `e` or `m`, number and second of the entry to start below.
local thread, most, kind, seq, at_s = find_thread(take()), number(), take(), take(), take()

-- The entry as it is told, or `false`.
local function tell(entry)
  local entry_kind, of = string.sub(entry, 1, 1), string.sub(entry, 2)
  if entry_kind == 'm' then
    local row = redis.call('HMGET', key('m', of), 'created', 'text', 'provider_id', 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7')
    return row[1] and { 'm', tonumber(of), unpack(row) }
  end
  local event = redis.call('GET', key('e', of))
  if not event then return false end
  event = cmsgpack.unpack(event)
  return { 'e', tonumber(of), event[1], event[10], event[6], event[8] and 1 or 0 }
end

local below = '+inf'
if kind ~= '' then
  local before = tell(kind .. seq)
  if not before or second(before[3]) ~= tonumber(at_s) then return {} end
  below = '(' .. seq
end
local cut = redis.call('HGET', key('t', thread), 'cut')
local entries = redis.call('ZREVRANGEBYSCORE', key('te', thread), below, cut and '(' .. cut or '-inf', 'LIMIT', 0, most)
local rows = {}
for n, entry in ipairs(entries) do rows[n] = tell(entry) end
return rows
