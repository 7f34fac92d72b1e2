-- Puts back what cancel_if removed by "u" or "p", as it was. No allow-oom: a full server refuses it before anything is
-- written.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall  5 channel of the hints  6 hint up to its time  7 largest body in bytes
--       8 who removed them (8 bytes)  9 and on, for each: id, l(ive) or d(ead), score, attempts and reason, body
-- Errors  FORGOTTEN, NEVER: see recall
-- Returns  a list: 1 it is there again, 0 it was left alone: the id lives, or the shard remembers something else of it,
--          or nothing
-- Cost  O(n log N), three calls for each that is put back, five and those of place for a dead letter; that of
--       remembered, see past
-- What was put back, or ended since in another way, has no outcome with the mark any more: it comes back once.
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local n, ids, out, seen, soon, done = (#A - 8) / 5, {}, {}, {}, math.huge, false
for i = 1, n do ids[i] = A[5 * i + 4] end
local live, dead = call('ZMSCORE', Z, unpack(ids)), call('ZMSCORE', D, unpack(ids))
local past = remembers and remembered(ids) or {} -- of a shard that does not remember nothing is put back
local first = tonumber(call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2])
-- Due time, nonce and score or attempts, and behind them the mark of who asks.
local function is_removal(was, kind, score, info, body)
  return was and byte(was) == (kind == 'd' and DEAD or CANCELLED) and sub(was, PAST_DUE_AT) ==
    sub(body, DUE_AT, NONCE_END) .. struct.pack('>I8', tonumber(kind == 'd' and string.match(info, '^%d+') or score))
    .. UNDOABLE .. A[8]
end
for i = 1, n do
  local at = 5 * i + 4
  local id, kind, score, info, body = unpack(A, at, at + 4)
  out[i] = 0
  if not live[i] and not dead[i] and not seen[id] and is_removal(past[i], kind, score, info, body) then
    out[i], seen[id], done = 1, true, true
    call('HSET', B, id, body)
    if kind == 'd' then
      call('ZADD', D, int(free_place(tonumber(score))), id)
      call('HSET', I, id, info)
    else
      call('ZADD', Z, score, id)
      local due = U and #body >= DUE_END and struct.unpack(DUE, body, DUE_AT)
      if due and due ~= math.floor(score / 1000) then call('ZADD', U, int(due), id) end
      soon = math.min(soon, math.floor(score / 1000))
    end
    -- The next removal of it is another one.
    unmark(id, past[i])
  end
end
if not done then return out end
if A[7] - meta[2] > 0 then call('HSET', M, 'body_max', A[7]) end
call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out))
if soon * 1000 < first and soon <= own + HINT_WITHIN_MS then redis.pcall('PUBLISH', A[5], A[6] .. int(soon)) end
return out
