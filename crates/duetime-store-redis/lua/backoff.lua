-- Part of the script that claims: how long what failed waits, as retry.rs of duetime-core has it, without jitter.
--
-- backoff(tries): the wait in ms after so many attempts, at least one.
-- KEYS  none of its own
-- ARGV  9 first wait in ms, 10 factor, 11 longest wait in ms; or 9 the waits in ms, the first one first, with spaces
--       between them, 10 and 11 ""
-- Returns  nothing
-- Cost  no call
local function backoff(tries)
  local before = math.max(tries, 1) - 1
  if ARGV[10] ~= '' then return math.min(ARGV[9] * ARGV[10] ^ before, tonumber(ARGV[11])) end
  local last
  for wait in string.gmatch(ARGV[9], '%d+') do
    last = tonumber(wait)
    if before == 0 then break end
    before = before - 1
  end
  return last
end
