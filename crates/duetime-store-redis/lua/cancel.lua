-- Removes messages, wherever they are in their life.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 request (8 bytes), and a ninth byte where an earlier sending may have been carried out, then ids
-- Errors  FORGOTTEN: it may have been carried out before, which is not remembered, and an id is not there
-- Returns  0 when all are cancelled, else a list: 0 cancelled, 1 in flight, 2 unknown
-- Cost  O(n log N), five calls
-- The first answer is remembered: a repetition finds nothing there any more, and a late one must do nothing.
-- 33 outcomes are digits of base 3 of one number, plus 1; 0: all are cancelled.
local request, again, n, PART = sub(ARGV[2], 1, 8), #ARGV[2] > 8, #ARGV - 2, 33
local parts, forgotten = math.ceil(n / PART), 'FORGOTTEN the answer to an earlier sending is not remembered'
-- A long answer has several numbers, each of a request of its own.
local function named(part) return sub(request, 1, 7) .. string.char((byte(request, 8) + part - 1) % 256) end
local known = recall(request)
if known == 0 then return 0 end
if known then
  local before = {}
  for part = 1, parts do
    local number = recall(named(part))
    if again and not number then return redis.error_reply(forgotten) end
    number = number and number - 1
    for i = (part - 1) * PART + 1, math.min(part * PART, n) do
      before[i] = number and number % 3 or 2
      number = number and math.floor(number / 3)
    end
  end
  return before
end
local scores = call('ZMSCORE', Z, unpack(ARGV, 3))
-- What is not there now may have been cancelled by the earlier sending, or never been there: nobody can tell.
for i = 1, again and n or 0 do
  if not scores[i] and not call('ZSCORE', D, ARGV[i + 2]) then return redis.error_reply(forgotten) end
end
local out, all, present, gone = {}, true, 0, 0
for i = 1, n do
  local s = scores[i]
  out[i] = 0
  local class = s and byte(s, -3) or 48
  present = present + (s and 1 or 0)
  if not s then
    out[i], all = 2, false
  elseif class > 48 and class < 57 and #s > 2 then
    out[i], all, gone = 1, false, gone + 1
  end
end
local removed = present > 0 and call('ZREM', Z, unpack(ARGV, 3)) or 0
if removed < present then
  -- An id was given twice; the second time it was there no more.
  local seen = {}
  for i = 1, n do
    local id = ARGV[i + 2]
    if seen[id] and out[i] == 1 then gone = gone - 1 end
    if seen[id] then out[i], all = 2, false end
    seen[id] = true
  end
end
if not all and call('ZCARD', D) > 1 then
  for i = 1, n do
    if out[i] == 2 and call('ZREM', D, ARGV[i + 2]) == 1 then
      call('HDEL', I, ARGV[i + 2])
      out[i] = 0
    end
  end
end
call('HDEL', B, unpack(ARGV, 3))
local function part_of(part)
  local number = 0
  for i = math.min(part * PART, n), (part - 1) * PART + 1, -1 do number = number * 3 + out[i] end
  return number + 1
end
if all or parts == 1 then
  call('HSET', M, 'in_flight', int(flight - gone), remember(request, all and 0 or part_of(1)))
else
  local fields = { 'in_flight', int(flight - gone) }
  for part = parts, 1, -1 do
    for _, field in ipairs({ remember(named(part), part_of(part)) }) do fields[#fields + 1] = field end
  end
  call('HSET', M, unpack(fields))
end
return all and 0 or out
