-- Part of the scripts that must not act twice: the reply cache. A call has a slot, a field of the bodies that no
-- id can have, and leaves there its name, a space and its answer packed, or the name alone where that is the usual
-- one. Its repetition is distinguished from a call that was never carried out, and answered as the first time,
-- whatever became of the messages since. Before it stand since, slot and name.
--
-- KEYS  the shard's five, see prelude
-- ARGV  since: "" for a first sending; of a repetition the time of the server in ms that had come when the call
--         was sent first, behind "?" where the call is not to act any more
--       slot: byte 0 and one more
--       name: "SESSION NUMBER NOT-AFTER", see prelude for the last; numbers rise in a session
-- Returns  before: the earlier answer, packed, "": the usual one; refused: an error that ends the script,
--          FORGOTTEN: whether it was carried out is not known | NEVER: it was not, and is not to be
-- Cost  none for a first sending, else one call
-- Like the slots of a session of NFS 4.1 (RFC 8881, 2.10.6), but sessions share the slots of a shard: what another
-- session left counts as later than this call, unless it is too old for that by every clock, and none was put back.
local before, refused
if since ~= '' then
  local session, number = string.match(name, '^(%S+) (%d+)')
  local of, last, till, answer = string.match(call('HGET', B, slot) or '', '^(%S+) (%d+) (%d+) ?(.*)$')
  local asked, earlier = sub(since, 1, 1) == '?', not of
  if of == session and last == number then
    before = answer
  elseif of == session then
    earlier = tonumber(last) < tonumber(number)
  elseif of then
    local sent = tonumber(asked and sub(since, 2) or since)
    -- What was left since by a clock that was put back looks old too.
    earlier = till + 2000 < sent and own + 2000 >= sent
  end
  if not before and not earlier then
    refused = redis.error_reply('FORGOTTEN the answer to an earlier sending is not remembered')
  elseif not before and asked then
    refused = redis.error_reply('NEVER it was not carried out')
  end
end
