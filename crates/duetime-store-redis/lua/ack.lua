-- Removes messages whose claims were done. A claim's score is its own, so the members that have it
-- are exactly what the claim still holds; a whole claim goes in one range.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 "1": repeated, the first answer was lost  3 number of claims, then for each:
--       claimed score, n, n ids in byte order
-- Returns  1 when all are ok, else a list in the order given: 1 ok, 0 expired, 2 done already
-- Cost  O(n + log N) a claim; where it remembers, a call more and O(bytes of the bodies); with a watermark a call more
local repeated, at, done, total, out = A[2] == '1', 4, 0, 0, nil
local lost, lost_at, lost_score = {}, {}, {}
local function deliver(ids, first, last, score)
  local bodies = heads(ids, first, last)
  for i = first, last do ended(DELIVERED, ids[i], bodies[i - first + 1], score) end
end
for _ = 1, tonumber(A[3]) do
  local score, n, first = A[at], tonumber(A[at + 1]), at + 2
  local final = first + n - 1
  local ask = 2 * n + 8
  local held = call('ZRANGEBYSCORE', Z, score, score, 'LIMIT', 0, ask)
  local whole = #held == n
  for i = 1, whole and n or 0 do
    if held[i] ~= A[at + 1 + i] then whole = false break end
  end
  if whole then
    if remembers then deliver(A, first, final, score) end
    call('ZREMRANGEBYSCORE', Z, score, score)
    if U then call('ZREM', U, unpack(A, first, final)) end
    call('HDEL', B, unpack(A, first, final))
    done = done + n
  else
    local is, mine = {}, {}
    if #held < ask then
      for i = 1, #held do is[held[i]] = true end
    else
      local scores, wanted = call('ZMSCORE', Z, unpack(A, first, final)), tonumber(score)
      for i = 1, n do is[A[first + i - 1]] = scores[i] and tonumber(scores[i]) == wanted end
    end
    for i = 1, n do
      local id = A[at + 1 + i]
      if is[id] then
        is[id] = false
        mine[#mine + 1] = id
      elseif not (repeated and not call('ZSCORE', Z, id)) then
        out = out or {}
        out[total + i] = 0
        lost[#lost + 1], lost_at[#lost + 1], lost_score[#lost + 1] = id, total + i, score
      end
    end
    if mine[1] then
      if remembers then deliver(mine, 1, #mine, score) end
      call('ZREM', Z, unpack(mine))
      if U then call('ZREM', U, unpack(mine)) end
      call('HDEL', B, unpack(mine))
      done = done + #mine
    end
  end
  total, at = total + n, final + 1
end
if done > 0 then call('HSET', M, 'in_flight', int(flight - done)) end
if remembers then
  write_past()
  local past = remembered(lost)
  for k, i in ipairs(lost_at) do
    if past[k] and is_ack_of(past[k], lost_score[k]) then out[i] = repeated and 1 or 2 end
  end
end
for i = 1, out and total or 0 do out[i] = out[i] or 1 end
return out or 1
