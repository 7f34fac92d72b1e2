-- Removes messages that are still what the caller saw: held by nobody, with this score and this nonce.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall  5 "m": they live elsewhere from now on, else they are cancelled
--       6 and on, for each: id, score, nonce (8 bytes)
-- Errors  FORGOTTEN, NEVER: see recall
-- Returns  a list: 0 removed, 1 it is there and another version, claimed or dead, 2 unknown, or what is remembered of
--          it
-- Cost  O(n log N), two calls, and two more for each that has the score
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local n, ids, gone, gone_at, removed, out = (#A - 5) / 3, {}, {}, {}, {}, {}
for i = 1, n do ids[i] = A[3 * i + 3] end
local scores = call('ZMSCORE', Z, unpack(ids))
local dead = call('ZCARD', D) > 1 and call('ZMSCORE', D, unpack(ids)) or {}
for i = 1, n do
  local id, s = ids[i], scores[i]
  if removed[id] or not (s or dead[i]) then
    out[i] = 2
    gone[#gone + 1], gone_at[#gone + 1] = id, i
  else
    out[i] = 1
    if s and tonumber(s) == tonumber(A[3 * i + 4]) and math.floor(s % 1000 / 100) == 0 then
      local body = call('HGET', B, id) or ''
      if sub(body, NONCE_AT, NONCE_END) == A[3 * i + 5] then
        out[i], removed[id] = 0, true
        removed[#removed + 1] = id
        if remembers then ended(A[5] == 'm' and MOVED or CANCELLED, id, body, s) end
      end
    end
  end
end
if remembers then
  write_past()
  local past = remembered(gone)
  for k, i in ipairs(gone_at) do out[i] = past[k] or 2 end
end
if removed[1] then
  call('ZREM', Z, unpack(removed))
  call('HDEL', B, unpack(removed))
  call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out))
end
return out
