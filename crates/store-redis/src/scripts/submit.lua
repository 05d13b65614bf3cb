-- Records a message as queued and puts it in the outbox.
if not is_account(take()) then return 'U' end
local most, new = number(), take_message()
if is_full_for(new, most) then return { 'B', 0, 0 } end
local answer = submit(new)
if answer[1] == 'N' then announce() end
return answer
