-- Changes dead letters that are still what the caller saw, of this enqueue and dead since this very ms: removes them,
-- as they live in another topic from now on, or schedules other messages at once in their places.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall  5 "m": they are removed, "e": others take their places  6 channel of the
--       hints  7 hint up to its time  8 and on, for each: id, ms of the death, nonce (8 bytes), tail of the other
--       message
-- Errors  SKEW ms, of e | FORGOTTEN, NEVER: see recall
-- Returns  a list: 0 done, 1 something else of the id is there, 2 nothing is, 3 the other message is there, or is
--          remembered
-- Cost  O(n log N), two calls an item and O(bytes of its body), three more for one that is changed
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local now, _, skewed = present()
local moves, n, out, gone, gone_at, done = A[5] == 'm', (#A - 7) / 4, {}, {}, {}, false
local longest = tonumber(meta[2])
if not moves and skewed then return skewed end
local due = struct.pack(HEAD, VERSION, now)
for i = 1, n do
  local id, died, nonce, tail = unpack(A, 4 * i + 4, 4 * i + 7)
  local cursor, was = call('ZSCORE', D, id), call('HGET', B, id)
  local is = was and sub(was, NONCE_AT, NONCE_END)
  if cursor and is == nonce and math.floor(cursor / 1000) == tonumber(died) then
    out[i], done = 0, true
    call('ZREM', D, id)
    if moves then
      if remembers then ended(MOVED, id, was, string.match(call('HGET', I, id) or '', '^%d+') or 0) end
      call('HDEL', B, id)
    else
      call('HSET', B, id, due .. tail)
      call('ZADD', Z, int(now * 1000), id)
      longest = math.max(longest, #due + #tail)
    end
    call('HDEL', I, id)
  elseif is and not moves and is == sub(tail, 1, 8) then
    out[i] = 3
  elseif cursor or was then
    out[i] = 1
  else
    out[i], gone[#gone + 1], gone_at[#gone + 1] = 2, id, i
  end
end
if remembers then write_past() end
local past = remembers and not moves and remembered(gone) or {}
for k, i in ipairs(gone_at) do
  if past[k] and sub(past[k], PAST_NONCE_AT, PAST_NONCE_END) == sub(A[4 * i + 7], 1, 8) then out[i] = 3 end
end
if longest > tonumber(meta[2]) then call('HSET', M, 'body_max', int(longest)) end
if done then call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out)) end
if done and not moves then redis.pcall('PUBLISH', A[6], A[7] .. int(now)) end
return out
