-- Claims. `claim:` holds one by its name: eight bytes that are new with every change, its fence in 19 digits, a digit for its state, and the
-- rest as the caller wrote it. `result:` holds what its job came to. The line `claims` has all of them by fence, each as its fence and its name;
-- `claim_ends` those that end, by their end, and `claim_held` those that are held, by the end of their lease. `claim_meta` counts.

-- The highest fence, in 19 digits, of a claim that is gone.
local function highest_gone() return redis.call('HGET', key('claim_meta'), 'gone') or '' end

local function drop_claim(name)
  local kept = redis.call('GETRANGE', key('claim', name), 0, 27)
  if kept == '' then return end
  local fence = string.sub(kept, 9, 27)
  if fence > highest_gone() then redis.call('HSET', key('claim_meta'), 'gone', fence) end
  redis.call('DEL', key('claim', name), key('result', name))
  redis.call('ZREM', key('claims'), fence .. name)
  redis.call('ZREM', key('claim_ends'), name)
  redis.call('ZREM', key('claim_held'), name)
  if string.sub(kept, 28, 28) == '2' then redis.call('HINCRBY', key('claim_meta'), 'values', -1) end
end

local function put_claim(name, record, result, ends, held_until)
  local kept = redis.call('GETRANGE', key('claim', name), 0, 27)
  local fence = string.sub(record, 9, 27)
  redis.call('SET', key('claim', name), record)
  if kept ~= '' and string.sub(kept, 9, 27) ~= fence then
    redis.call('ZREM', key('claims'), string.sub(kept, 9, 27) .. name)
  end
  redis.call('ZADD', key('claims'), 0, fence .. name)
  if result then redis.call('SET', key('result', name), result) else redis.call('DEL', key('result', name)) end
  if ends then redis.call('ZADD', key('claim_ends'), ends, name) else redis.call('ZREM', key('claim_ends'), name) end
  if held_until then redis.call('ZADD', key('claim_held'), held_until, name) else redis.call('ZREM', key('claim_held'), name) end
  local values = (string.sub(record, 28, 28) == '2' and 1 or 0) - (string.sub(kept, 28, 28) == '2' and 1 or 0)
  if values ~= 0 then redis.call('HINCRBY', key('claim_meta'), 'values', values) end
end
