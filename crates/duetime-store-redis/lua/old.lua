-- Part of the scripts on ids at their old home: leaves in ARGV only what lives here, for the script
-- that follows, and answers which these were.
--
-- Before it stand FIRST, STRIDE, AT: where items begin, how long each is, where its id is in it;
-- COUNT: where their number is, or nil; REMOVES: what was found is remembered for a repetition.
-- A second section of pairs and two strings with a letter for each item: PAIRS (enqueue).
-- KEYS  6 outbox
-- ARGV  2 request (8 bytes)  3 n
--       4 and on: what the script that follows has from its 2 on
-- Returns  {list: 0 it was there, 1 absent, 2 frozen, answer of the script that follows, or 0}
-- Cost  O(n), up to four calls
local O, asked, total, args = KEYS[6], ARGV, tonumber(ARGV[3]), { ARGV[1] }
for i = 4, #asked do args[i - 2] = asked[i] end
local found, ids, kept = {}, {}, 0
for i = 1, total do ids[i] = args[FIRST + (i - 1) * STRIDE + AT] end
local digits = REMOVES and recall(asked[2])
if digits then
  for i = total, 1, -1 do
    found[i] = digits % 4
    digits = (digits - found[i]) / 4
  end
else
  local live = call('ZMSCORE', Z, unpack(ids))
  local dead = call('ZCARD', D) > 1 and call('ZMSCORE', D, unpack(ids)) or {}
  local frozen = call('HLEN', O) > 1 and call('HMGET', O, unpack(ids)) or {}
  digits = 1
  for i = 1, total do
    found[i] = frozen[i] and 2 or (live[i] or dead[i]) and 0 or 1
    digits = digits * 4 + found[i]
  end
  -- Absence counts only when replicated: WAIT waits for a write.
  if REMOVES then call('HSET', M, remember(asked[2], digits)) else call('HSET', KEYS[7], '', '') end
end
local ARGV, second = {}, {}
for i = 1, FIRST - 1 do ARGV[i] = args[i] end
if PAIRS then ARGV[6], ARGV[7] = '', '' end
for i = 1, total do
  if found[i] == 0 then
    kept = kept + 1
    local from = FIRST + (i - 1) * STRIDE
    for k = from, from + STRIDE - 1 do ARGV[#ARGV + 1] = args[k] end
    if PAIRS then
      ARGV[6], ARGV[7] = ARGV[6] .. sub(args[6], i, i), ARGV[7] .. sub(args[7], i, i)
      second[#second + 1], second[#second + 2] = args[from + 2 * total], args[from + 2 * total + 1]
    end
  end
end
for i = 1, #second do ARGV[#ARGV + 1] = second[i] end
if COUNT then ARGV[COUNT] = int(kept) end
