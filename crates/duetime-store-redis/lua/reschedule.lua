-- Gives messages another due time, and their attempts back, while nobody holds them. That one may have arrived stays.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 since, 3 slot, 4 name: see recall  5 channel of the hints  6 hint up to its time
--       7 n, then n times: id, a(bsolute) or d(elay), ms
-- Errors  SKEW ms, where a delay is in the batch | FORGOTTEN, NEVER: see recall
-- Returns  a list: the due time, or -1 in flight, -2 dead, -3 unknown
-- Cost  O(n log N), four calls an item
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local _, now, skewed = present()
local n, at, out = tonumber(A[7]), 8, {}
for i = 1, skewed and n or 0 do
  if A[3 * i + 6] == 'd' then return skewed end
end
local first = tonumber(call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2])
local soon = math.huge
for i = 1, n do
  local id, kind, value = unpack(A, at, at + 2)
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
    call('ZADD', Z, int(due * 1000 + class * 100), id)
    if U then call('ZREM', U, id) end
    if body then call('HSET', B, id, struct.pack(HEAD, VERSION, due) .. sub(body, NONCE_AT)) end
    soon = math.min(soon, due)
    out[i] = due
  end
end
if soon < math.huge then call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out)) end
if soon * 1000 < first and soon <= now + HINT_WITHIN_MS then
  redis.pcall('PUBLISH', A[5], A[6] .. int(soon))
end
return out
