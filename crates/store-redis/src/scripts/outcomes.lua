-- What an outcome does to a message, as `Outgoing::settle` of `domain` says it.
local function settle(seq, state, kind, detail, wait, charged)
  local past = state.past
  if kind == 'S' then
    call_message(seq, state, detail)
    end_as_sent(state, now)
  elseif kind == 'H' then
    if not state.place.begun then state.place.attempt = state.place.attempt - 1 end
    state.place.due = now + wait
    settle_as_known(state, now)
  elseif settle_as_known(state, now) then
    return
  elseif kind == 'F' and not in_doubt(state) then
    end_as(state, FAILED, detail, now)
  elseif kind == 'F' then
    doubt(state, detail, nil)
  elseif kind == 'R' then
    requeue(state, now + wait, detail, charged)
  elseif kind == 'A' then
    past.doubt = past.doubt or state.place.attempt
    requeue(state, now + wait, detail, 1)
  else
    past.doubt = past.doubt or state.place.attempt
    doubt(state, detail, wait and now + wait or nil)
  end
end

