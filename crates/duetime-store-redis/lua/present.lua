-- Part of the scripts that report what is due, or count a delay.
--
-- KEYS  the shard's five, see prelude
-- ARGV  none of its own
-- Returns  present(): the earlier and the later of the two clocks, and the refusal of a caller whose clock is
--          too far from the server's, or false. By the earlier a message is due; from the later a delay counts, and
--          what a claim hides: nothing is early by either.
-- Cost  no call
local function present()
  local caller = tonumber(sub(head, -36, -24))
  local apart = own - caller
  if apart > 2000 or apart < -2000 then
    return math.min(own, caller), math.max(own, caller), redis.error_reply('SKEW ' .. int(apart))
  end
  if apart < 0 then return own, caller, false end
  return caller, own, false
end
