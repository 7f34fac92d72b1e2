-- Redrives dead letters, due at once with all attempts given back, or removes them for good.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 r(edrive) or p(urge)  3 channel of the hints  4 hint up to its time
--       5 "1": repeated, the first answer was lost, then ids
-- Errors  SKEW ms, of a redrive
-- Returns  a list: 1 done, 0 not a dead letter
-- Cost  O(n log N), three calls an item
local refused = ARGV[2] == 'r' and skewed()
if refused then return refused end
local now, out, redriven = earlier, {}, false
for i = 6, #ARGV do
  local id = ARGV[i]
  if id ~= '' and call('ZREM', D, id) == 1 then
    call('HDEL', I, id)
    if ARGV[2] == 'r' then
      call('ZADD', Z, int(now * 1000), id)
      redriven = true
    else
      call('HDEL', B, id)
    end
    out[#out + 1] = 1
  elseif ARGV[5] == '1' and (ARGV[2] == 'r') == (call('ZSCORE', Z, id) ~= false) then
    out[#out + 1] = 1
  else
    out[#out + 1] = 0
  end
end
if redriven then redis.pcall('PUBLISH', ARGV[3], ARGV[4] .. int(now)) end
return out
