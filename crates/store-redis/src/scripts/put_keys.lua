-- Takes over keys, which belong to no account as far as anybody knows: `k:` and `keys:` as in `accept`. Answers `T` when one is there already.
return once(function()
  for _ = 1, number() do
    local name, seq, at, fingerprint, ends = take(), take(), number(), number(), number()
    if redis.call('EXISTS', key('k', name)) == 1 then return 'T', true end
    redis.call('SET', key('k', name), cmsgpack.pack({ seq, at, fingerprint, ends }))
    if by_server then redis.call('PEXPIREAT', key('k', name), ends + 86400000) end
    redis.call('ZADD', key('keys'), ends, name)
  end
  return 'D'
end)
