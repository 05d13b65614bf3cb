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

-- What was made here is called by its number within the account, which counts up. What was moved here from another store is called by the
-- number it had there, in 19 digits: too many for a number of a script, so it stays a text. All of it comes before what was made here.
local function is_moved(seq) return type(seq) == 'string' and #seq == 19 end

-- By which a line is sorted. Numbers made here hold the account in 20 more bits, and so begin above all that were moved; what is too
-- close together to be told apart is sorted by its digits.
local function score(seq)
  if is_moved(seq) then return string.format('%.17g', tonumber(seq) / 1048576) end
  return seq
end

local function is_below(a, b)
  if is_moved(a) and is_moved(b) then return a < b end
  if is_moved(a) or is_moved(b) then return is_moved(a) end
  return tonumber(a) < tonumber(b)
end

-- Numbers of one width sort as text.
local function wide(seq)
  if is_moved(seq) then return string.format('%014.0f!', tonumber(seq) / 1048576) .. seq end
  return string.format('%014.0f', tonumber(seq))
end

-- What stands behind a number that was made wide.
local function behind_wide(text) return string.sub(text, string.sub(text, 15, 15) == '!' and 35 or 15) end

-- Whether these keys are the account's that the caller takes them for. They are not when the server has lost its data since the caller
-- looked the account up; then nothing may be written.
local function is_account(name) return redis.call('HGET', key('meta'), 'account') == name end

local function next_seq() return redis.call('HINCRBY', key('meta'), 'seq', 1) end

-- A text: after a move it may be higher than a script can count.
local function next_fence()
  redis.call('HINCRBY', key('meta'), 'fence', 1)
  return redis.call('HGET', key('meta'), 'fence')
end

local function second(ms) return math.floor(tonumber(ms) / 1000) end

local function split(list)
  local parts = {}
  for part in string.gmatch(list, '[^,]+') do parts[#parts + 1] = part end
  return parts
end

-- How many of a line come before the first of which `is_before` is not true.
local function rank(line, is_before)
  local low, high = 0, redis.call('ZCARD', line)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_before(redis.call('ZRANGE', line, middle, middle)[1]) then low = middle + 1 else high = middle end
  end
  return low
end

-- How many of a line, which is sorted by number, have an id below this one.
local function rank_of_id(line, time_of, at_s, seq)
  return rank(line, function(one)
    local one_s = second(time_of(one))
    return one_s < at_s or (one_s == at_s and is_below(one, seq))
  end)
end
