-- Named values. Those that are kept for ever are the fields of `settings`; those that end are `reg:`, in the line `regs` by their end.
local function look_up(name)
  local ends = redis.call('ZSCORE', key('regs'), name)
  if ends then return tonumber(ends) > now and redis.call('GET', key('reg', name)) end
  return redis.call('HGET', key('settings'), name)
end

local function forget(name)
  redis.call('DEL', key('reg', name))
  redis.call('ZREM', key('regs'), name)
  redis.call('HDEL', key('settings'), name)
end

-- Writes before it removes: a script that begins with a removal may go on where memory is full.
local function put(name, value, ends)
  if not ends then
    redis.call('HSET', key('settings'), name, value)
    redis.call('DEL', key('reg', name))
    redis.call('ZREM', key('regs'), name)
    return
  end
  redis.call('SET', key('reg', name), value)
  redis.call('ZADD', key('regs'), string.format('%.0f', ends), name)
  redis.call('HDEL', key('settings'), name)
end
