-- Opens the scripts that have no prelude.
--
-- KEYS  as the script says
-- ARGV  the last one: the time of the server in ms after which the call must not be carried out any more
-- Returns  nothing; a refusal ends the script: LATE ms
-- Cost  one call, O(1)
do
  local clock = redis.call('TIME')
  local late = clock[1] * 1000 + math.floor(clock[2] / 1000) - ARGV[#ARGV]
  if late > 0 then return redis.error_reply(string.format('LATE %.0f', late)) end
end
