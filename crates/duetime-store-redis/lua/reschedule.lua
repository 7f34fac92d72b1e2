-- Gives messages another due time, and their attempts back, while nobody holds them.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 channel of the hints  3 hint up to its time  4 how far ahead a hint is worth while, ms
--       5 n, then n times: id, a(bsolute) or d(elay), ms
-- Errors  SKEW ms, where a delay is in the batch
-- Returns  a list: the due time, or -1 in flight, -2 dead, -3 unknown
-- Cost  O(n log N), four calls an item
local now, n, at, out = later, tonumber(ARGV[5]), 6, {}
local refused = skewed()
for i = 1, refused and n or 0 do
  if ARGV[3 * i + 4] == 'd' then return refused end
end
local head = tonumber(call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2])
local soon = math.huge
for i = 1, n do
  local id, kind, value = unpack(ARGV, at, at + 2)
  at = at + 3
  local s = call('ZSCORE', Z, id)
  local class = s and math.floor(s % 1000 / 100)
  if not s then
    out[i] = call('ZSCORE', D, id) and -2 or -3
  elseif class > 0 and class < 9 then
    out[i] = -1
  else
    local due = kind == 'd' and now + value or tonumber(value)
    local body = call('HGET', B, id)
    call('ZADD', Z, int(due * 1000), id)
    if body then call('HSET', B, id, struct.pack('>BI8', 1, due) .. sub(body, 10)) end
    soon = math.min(soon, due)
    out[i] = due
  end
end
if soon * 1000 < head and soon <= now + ARGV[4] then
  redis.pcall('PUBLISH', ARGV[2], ARGV[3] .. int(soon))
end
return out
