-- Removes messages, wherever they are in their life.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 "1": repeated, the first answer was lost  3 request (8 bytes), then ids
-- Returns  0 when all are cancelled, else a list: 0 cancelled, 1 in flight, 2 unknown
-- Cost  O(n log N), five calls
-- A repetition finds nothing there any more: the first answer is remembered, whole up to 25 ids,
-- beyond that only when all were cancelled. Outcomes are digits of base 4 below a leading 1.
local repeated, request, n = ARGV[2] == '1', ARGV[3], #ARGV - 3
local known = repeated and recall(request)
if known then
  if known == 0 then return 0 end
  local before = {}
  for i = n, 1, -1 do
    before[i] = known % 4
    known = (known - before[i]) / 4
  end
  return before
end
local scores = call('ZMSCORE', Z, unpack(ARGV, 4))
local out, all, present, gone = {}, true, 0, 0
for i = 1, n do
  local s = scores[i]
  out[i] = 0
  if s then
    present = present + 1
    local class = byte(s, -3) or 48
    if class > 48 and class < 57 and #s > 2 then
      out[i], all, gone = 1, false, gone + 1
    end
  else
    out[i], all = 2, false
  end
end
local removed = present > 0 and call('ZREM', Z, unpack(ARGV, 4)) or 0
if removed < present then
  -- An id was given twice; the second time it was there no more.
  local seen = {}
  for i = 1, n do
    local id = ARGV[i + 3]
    if seen[id] then
      if out[i] == 1 then gone = gone - 1 end
      out[i], all = 2, false
    end
    seen[id] = true
  end
end
if not all and call('ZCARD', D) > 1 then
  for i = 1, n do
    local id = ARGV[i + 3]
    if out[i] == 2 and call('ZREM', D, id) == 1 then
      call('HDEL', I, id)
      out[i] = 0
    end
  end
end
call('HDEL', B, unpack(ARGV, 4))
local digits = 1
for i = 1, all and 0 or n do digits = digits * 4 + out[i] end
if all then digits = 0 end
if all or n <= 25 then
  call('HSET', M, 'in_flight', int(flight - gone), remember(request, digits))
else
  call('HSET', M, 'in_flight', int(flight - gone))
end
return all and 0 or out
