-- Removes messages that are still what the caller saw: held by nobody, with this score and this nonce; or dead letters
-- that died in this very ms.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall  5 "m": they live elsewhere from now on, "p": dead letters, which are
--       purged, else they are cancelled; of p and "u" with who may put them back (8 bytes) behind it, see restore
--       6 and on, for each: id, score or, of p, ms of the death, nonce (8 bytes)
-- Errors  FORGOTTEN, NEVER: see recall
-- Returns  a list: 0 removed, 1 it is there and another version, claimed or dead, 2 unknown, or what is remembered of
--          it
-- Cost  O(n log N), two calls, and two more for each that has the score
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local n, ids, gone, gone_at, removed, out = (#A - 5) / 3, {}, {}, {}, {}, {}
local purges, mark = byte(A[5]) == 112, #A[5] == 9 and UNDOABLE .. sub(A[5], 2) or nil
local end_of = purges and DEAD or A[5] == 'm' and MOVED or CANCELLED
local function is_same(s, died, given)
  if purges then return died and math.floor(died / 1000) == tonumber(given) end
  return s and tonumber(s) == tonumber(given) and math.floor(s % 1000 / 100) == 0
end
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
    if is_same(s, dead[i], A[3 * i + 4]) then
      local body = call('HGET', B, id) or ''
      if sub(body, NONCE_AT, NONCE_END) == A[3 * i + 5] then
        out[i], removed[id] = 0, true
        removed[#removed + 1] = id
        if remembers then
          local tries = purges and (string.match(call('HGET', I, id) or '', '^%d+') or 0) or s
          ended(end_of, id, body, tries, false, mark)
        end
      end
    end
  end
end
if remembers then
  write_past()
  local past = remembered(gone)
  for k, i in ipairs(gone_at) do
    out[i] = past[k] or 2
    -- For good, or elsewhere: see cancel.
    if past[k] and not mark then unmark(gone[k], past[k]) end
  end
end
if removed[1] then
  call('ZREM', purges and D or Z, unpack(removed))
  if purges then call('HDEL', I, unpack(removed)) end
  if U then call('ZREM', U, unpack(removed)) end
  call('HDEL', B, unpack(removed))
  call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out))
end
return out
