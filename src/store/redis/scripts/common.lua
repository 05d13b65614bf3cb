-- Put in front of every script. KEYS[1] is the root of all keys of one account: they share its hash tag, so that a script finds all
-- it needs in one slot. ARGV[1] is the time, empty in production: then it is the server's. ARGV[2] names the call, ARGV[3] the
-- channel on which work is announced; what the method itself takes begins at ARGV[4].
local root, taken = KEYS[1], 3

local function key(kind, name) return root .. kind .. ':' .. (name or '') end

-- The next argument.
local function take()
  taken = taken + 1
  return ARGV[taken]
end

local function number() return tonumber(take()) end

-- The next argument, where it may be missing: then it is empty, else it stands behind a plus sign.
local function maybe()
  local given = take()
  if given == '' then return false end
  return string.sub(given, 2)
end

local function maybe_number()
  local given = maybe()
  return given and tonumber(given)
end

-- With a clock turned by hand nothing may end by the server's own.
local by_server = ARGV[1] == ''

local function time()
  if not by_server then return tonumber(ARGV[1]) end
  local parts = redis.call('TIME')
  return parts[1] * 1000 + math.floor(parts[2] / 1000)
end
local now = time()

-- Runs a step that changes something, and keeps its small answer for a while: a caller whose connection was cut asks again under the
-- same name and gets the same answer. A step that found nothing to do says so, and is not kept.
local function once(step)
  local kept = redis.call('GET', key('done', ARGV[2]))
  if kept then return cmsgpack.unpack(kept) end
  local answer, idle = step()
  if not idle then redis.call('SET', key('done', ARGV[2]), cmsgpack.pack(answer), 'PX', 15000) end
  return answer
end

-- Working off goes on when the memory is full, because only that makes room: a script whose first write frees something may go on.
local function work_off() redis.call('DEL', key('done')) end

local function announce() redis.call('PUBLISH', ARGV[3], '') end

-- Numbers of one width sort as text.
local function wide(seq) return string.format('%014.0f', tonumber(seq)) end

-- Whether these keys are the account's that the caller takes them for. They are not when the server has lost its data since the caller
-- looked the account up; then nothing may be written.
local function is_account(name) return redis.call('HGET', key('meta'), 'account') == name end

local function next_seq() return redis.call('HINCRBY', key('meta'), 'seq', 1) end

local function next_fence() return redis.call('HINCRBY', key('meta'), 'fence', 1) end

local function second(ms) return math.floor(tonumber(ms) / 1000) end

local function split(list)
  local parts = {}
  for part in string.gmatch(list, '[^,]+') do parts[#parts + 1] = part end
  return parts
end

-- The first number of a line, which is sorted by number, whose id is not below this one; `false` when all are below.
local function seek(line, time_of, at_s, seq)
  local low, high = 0, redis.call('ZCARD', line)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local one = redis.call('ZRANGE', line, middle, middle)[1]
    local one_s = second(time_of(one))
    if one_s < at_s or (one_s == at_s and tonumber(one) < seq) then low = middle + 1 else high = middle end
  end
  return redis.call('ZRANGE', line, low, low)[1] or false
end
