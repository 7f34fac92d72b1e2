-- Removes messages, wherever they are in their life.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 since, 3 slot, 4 name: see recall  5 and on: ids
-- Errors  FORGOTTEN, NEVER: see recall
-- Returns  0 when all are cancelled, else a list: 0 cancelled, 1 in flight or given to somebody who never answered,
--          2 unknown
-- Cost  O(n log N), four calls, three more where a claim ends
if before then return before == '' and 0 or cmsgpack.unpack(before) end
if refused then return refused end
local n = #A - 4
local scores = call('ZMSCORE', Z, unpack(A, 5))
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
local removed = present > 0 and call('ZREM', Z, unpack(A, 5)) or 0
if removed < present then
  -- An id was given twice; the second time it was there no more.
  local seen = {}
  for i = 1, n do
    local id = A[i + 4]
    if seen[id] and held[i] then gone = gone - 1 end
    if seen[id] then out[i], all = 2, false end
    seen[id] = true
  end
end
if not all and call('ZCARD', D) > 1 then
  for i = 1, n do
    if out[i] == 2 and call('ZREM', D, A[i + 4]) == 1 then
      call('HDEL', I, A[i + 4])
      out[i], removed = 0, removed + 1
    end
  end
end
if removed > 0 then
  call('HDEL', B, unpack(A, 5))
  call('HSET', B, slot, all and name or name .. ' ' .. cmsgpack.pack(out))
end
if gone > 0 then
  -- For the holders: SCORE ID in a line each, the last 16 KiB of them. Beside the bodies, as the reply cache: meta
  -- has no long field.
  local noted, lines = call('HGET', B, '\0cancelled') or '', {}
  for i = 1, n do
    if held[i] and out[i] == 1 then lines[#lines + 1] = scores[i] .. ' ' .. A[i + 4] .. '\n' end
  end
  noted = noted .. table.concat(lines)
  if #noted > 16384 then noted = sub(noted, string.find(noted, '\n', -16384, true) + 1) end
  call('HSET', B, '\0cancelled', noted)
  call('HSET', M, 'in_flight', int(flight - gone))
end
return all and 0 or out
