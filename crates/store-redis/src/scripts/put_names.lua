-- Takes over names of peers.
for _ = 1, number() do call_it(take(), take()) end
return 'D'
