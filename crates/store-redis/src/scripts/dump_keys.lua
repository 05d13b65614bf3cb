-- Keys, of this account or of those that were moved here.
return page(key('keys'), function(one)
  local won = redis.call('GET', key('k', one))
  won = won and cmsgpack.unpack(won)
  return won and { one, won[1], won[2], won[3], won[4] }
end)
