-- Removes messages, wherever they are in their life.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall  5 where it remembers, what is done of an id that is unknown: "1" it is
--       noted, "f" it is refused, for there is no room to note it, "" nothing  6 and on: ids
-- Errors  FORGOTTEN, NEVER: see recall
-- Returns  0 when all are cancelled, else a list: 0 cancelled, 1 in flight or given to somebody who never answered,
--          2 unknown, or what is remembered of it, 3 unknown, and there is no room to note it
-- Cost  O(n log N), four calls, three more where a claim ends; where it remembers, a call more and O(bytes of the
--       bodies), two more where ids are noted
-- What is noted is no message: an id of which that alone is remembered is unknown as before. A note is left of what
-- moved too.
if before then return before == '' and 0 or cmsgpack.unpack(before) end
if refused then return refused end
local n = #A - 5
local scores = call('ZMSCORE', Z, unpack(A, 6))
local out, held, all, present, gone = {}, {}, true, 0, 0
for i = 1, n do
  local s = scores[i]
  out[i] = 0
  if s then
    present = present + 1
    local class = byte(s, -3) or 48
    if class > 48 and #s > 2 then
      out[i], held[i], all = 1, class < 57, false
      if held[i] then gone = gone + 1 end
    end
  else
    out[i], all = 2, false
  end
end
local removed = present > 0 and call('ZREM', Z, unpack(A, 6)) or 0
if U and removed > 0 then call('ZREM', U, unpack(A, 6)) end
local bodies = remembers and heads(A, 6, n + 5)
if removed < present then
  -- An id was given twice; the second time it was there no more.
  local seen = {}
  for i = 1, n do
    local id = A[i + 5]
    if seen[id] and held[i] then gone = gone - 1 end
    if seen[id] then out[i], all = 2, false end
    seen[id] = true
  end
end
for i = 1, remembers and n or 0 do
  if out[i] ~= 2 then ended(out[i] == 1 and CANCELLED_IN_FLIGHT or CANCELLED, A[i + 5], bodies[i], scores[i]) end
end
if not all and call('ZCARD', D) > 1 then
  for i = 1, n do
    if out[i] == 2 and call('ZREM', D, A[i + 5]) == 1 then
      if remembers then
        local info = call('HGET', I, A[i + 5])
        ended(CANCELLED, A[i + 5], bodies[i], string.match(info or '', '^%d+') or 0)
      end
      call('HDEL', I, A[i + 5])
      out[i], removed = 0, removed + 1
    end
  end
end
-- Of a note too the repetition has to know, also where there is no room any more.
local noted = false
if remembers then
  write_past()
  local gone, gone_at = {}, {}
  for i = 1, n do
    if out[i] == 2 then gone[#gone + 1], gone_at[#gone + 1] = A[i + 5], i end
  end
  local past, left = remembered(gone), nil
  for k, i in ipairs(gone_at) do
    local how = past[k] and byte(past[k]) or CANCELLED_BEFORE
    if how ~= CANCELLED_BEFORE then out[i] = past[k] end
    -- A cancel is for good: what a bulk action removed is not put back any more.
    if past[k] then unmark(gone[k], past[k]) end
    -- What moved lives elsewhere, and may be on its way back.
    if A[5] ~= '' and (how == CANCELLED_BEFORE or how == MOVED) then
      left = left or A[5] == '1' and notes_left() or 0
      if left > 0 then
        ended(CANCELLED_BEFORE, gone[k], nil, 0)
        left, noted = left - 1, true
      else
        out[i] = 3
      end
    end
  end
  write_past(true)
end
if removed > 0 then call('HDEL', B, unpack(A, 6)) end
if removed > 0 or noted then
  call('HSET', B, slot, all and name or name .. ' ' .. cmsgpack.pack(out))
end
if gone > 0 then
  -- For the holders: SCORE ID in a line each, the last 16 KiB of them. Beside the bodies, as the reply cache: meta
  -- has no long field.
  local told, lines = call('HGET', B, '\0cancelled') or '', {}
  for i = 1, n do
    if held[i] and out[i] == 1 then lines[#lines + 1] = scores[i] .. ' ' .. A[i + 5] .. '\n' end
  end
  told = told .. table.concat(lines)
  if #told > 16384 then told = sub(told, string.find(told, '\n', -16384, true) + 1) end
  call('HSET', B, '\0cancelled', told)
  call('HSET', M, 'in_flight', int(flight - gone))
end
return all and 0 or out
