-- Schedules messages. No allow-oom: a full server refuses new messages before anything is written.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, see recall  3 n  4 earliest absolute due time in ms  5 shortest delay in ms (9e15: there is none)
--       6 largest body in bytes  7 per item r(eject), p(ut in its place), e(arliest), l(atest) or
--       b(ack): see refusal
--       8 per item a(bsolute) or d(elay); empty: all absolute  9 channel of the hints  10 hint up to its time
--       11 slot, 12 name: see recall; then n pairs (id, body or tail), then n pairs (score or delay in ms, id), then,
--       where earlier homes remember an id that comes back, an outcome for each in one string, zeros for none
-- Errors  SKEW ms, where a delay is in the batch | FORGOTTEN, NEVER: see recall
-- Returns  the present in ms when all are new, else {present, outcomes, due times};
--          outcome 0 scheduled, 1 replaced, 2 it stays as it was, 3 replaced what is claimed, or was without an answer,
--          4 refused for what is remembered of the id, which stands instead of the due time
-- Cost  O(n log N), one write call for the scores and one for the bodies and the answer
if before then return before == '' and own or cmsgpack.unpack(before) end
local n, kinds, now, soon = A[3] + 0, A[8], own, A[4] + 0
if refused then
  -- What lives as this very enqueue made it says that it was carried out, but not whether it took another's place.
  local ids, outcome, dues = {}, {}, {}
  for i = 1, n do ids[i] = A[11 + 2 * i] end
  local there = call('HMGET', B, unpack(ids))
  for i = 1, n do
    -- With a delay the tail is given, which begins with the nonce.
    local was, given = there[i], byte(kinds, i) == 100 and 1 or NONCE_AT
    given = sub(A[12 + 2 * i], given, given + NONCE_END - NONCE_AT)
    local lives = was and sub(was, NONCE_AT, NONCE_END) == given
    if not lives or replaces(byte(A[7], i)) then return refused end
    outcome[i], dues[i] = 0, (struct.unpack(DUE, was, DUE_AT))
  end
  return { now, outcome, dues }
end
local bs, b, zs, z = A, 11, A, 13 + 2 * n
if kinds ~= '' then
  local _, later, skewed = present()
  if skewed and string.find(kinds, 'd', 1, true) then return skewed end
  now = later
  if now + A[5] < soon then soon = now + A[5] end
  local score, due_bytes = {}, {}
  bs, b, zs, z = { slot, name .. ' ' .. cmsgpack.pack(now) }, 1, {}, 1
  for i = 1, n do
    local id, body, at = A[11 + 2 * i], A[12 + 2 * i], A[11 + 2 * n + 2 * i]
    if byte(kinds, i) == 100 then
      if not score[at] then
        local due = now + at
        score[at], due_bytes[at] = int(due * 1000), struct.pack(HEAD, VERSION, due)
      end
      at, body = score[at], due_bytes[at] .. body
    end
    bs[2 * i + 1], bs[2 * i + 2], zs[2 * i - 1], zs[2 * i] = id, body, at, id
  end
end
local wake = soon <= now + HINT_WITHIN_MS
if wake then
  local first = call('ZRANGE', Z, 0, 0, 'WITHSCORES')
  wake = tonumber(first[2]) > soon * 1000
end
local past, recalls = {}, false
if remembers then past, recalls = refusals(bs, b, n, A[7], A[13 + 4 * n]) end
-- Without dead letters, what the ZSET takes as new is new; ZADD returns how many.
local added = -1
if not recalls and call('ZCARD', D) == 1 then
  added = call('ZADD', Z, 'NX', unpack(zs, z, z + 2 * n - 1))
end
local answer = now
-- A user may have lost the right to write bodies since: no id is left without one.
local function undone(failed, ids)
  if ids[1] then call('ZREM', Z, unpack(ids)) end
  return failed
end
if added == n then
  local kept = redis.pcall('HSET', B, unpack(bs, b, b + 2 * n + 1))
  if type(kept) == 'table' then
    local ids = {}
    for i = 1, n do ids[i] = zs[z + 2 * i - 1] end
    return undone(kept, ids)
  end
else
  local ids, outcome, dues, written = {}, {}, {}, {}
  for i = 1, n do ids[i] = bs[b + 2 * i] end
  local there = call('HMGET', B, unpack(ids))
  local kept, fresh = redis.pcall('HSET', B, '', ''), {}
  if type(kept) == 'table' then
    for i = 1, added > 0 and n or 0 do
      if not there[i] then fresh[#fresh + 1] = ids[i] end
    end
    return undone(kept, fresh)
  end
  for i = 1, n do
    local id, body = ids[i], bs[b + 2 * i + 1]
    local was = written[id] or there[i]
    local same = was and sub(was, NONCE_AT, NONCE_END) == sub(body, NONCE_AT, NONCE_END)
    if was and (same or stays(byte(A[7], i), was, body, id)) then
      outcome[i] = same and 0 or 2
      dues[i] = #was >= DUE_END and struct.unpack(DUE, was, DUE_AT) or 0
    elseif past[i] and not was then
      outcome[i], dues[i] = refusal(past[i], sub(body, NONCE_AT, NONCE_END))
    else
      outcome[i], dues[i] = was and 1 or 0, (struct.unpack(DUE, body, DUE_AT))
      local s = call('ZSCORE', Z, id)
      local class = s and math.floor(s % 1000 / 100) or 0
      if class > 0 then outcome[i] = 3 end
      if class > 0 and class < 9 then flight = flight - 1 end
      if was and not s then
        call('ZREM', D, id)
        call('HDEL', I, id)
      end
      call('ZADD', Z, zs[z + 2 * i - 2], id)
      if U and was then call('ZREM', U, id) end
      call('HSET', B, id, body)
      written[id] = body
    end
  end
  if flight ~= tonumber(meta[3]) then call('HSET', M, 'in_flight', int(flight)) end
  answer = { now, outcome, dues }
  call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(answer))
end
if A[6] - meta[2] > 0 then call('HSET', M, 'body_max', A[6]) end
-- A user without the right to publish must not lose the enqueue: it is a hint.
if wake then redis.pcall('PUBLISH', A[9], A[10] .. int(soon)) end
return answer
