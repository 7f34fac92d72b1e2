-- Removes messages, wherever they are in their life.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 and on: ids
-- Returns  0 when all are cancelled, else a list: 0 cancelled, 1 in flight, 2 unknown
-- Cost  O(n log N), three calls
local scores = call('ZMSCORE', Z, unpack(ARGV, 2))
local out, all, present, gone = {}, true, 0, 0
for i = 1, #ARGV - 1 do
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
local removed = present > 0 and call('ZREM', Z, unpack(ARGV, 2)) or 0
if removed < present then
  -- An id was given twice; the second time it was there no more.
  local seen = {}
  for i = 1, #ARGV - 1 do
    local id = ARGV[i + 1]
    if seen[id] then
      if out[i] == 1 then gone = gone - 1 end
      out[i], all = 2, false
    end
    seen[id] = true
  end
end
if not all and call('ZCARD', D) > 1 then
  for i = 1, #ARGV - 1 do
    local id = ARGV[i + 1]
    if out[i] == 2 and call('ZREM', D, id) == 1 then
      call('HDEL', I, id)
      out[i] = 0
    end
  end
end
call('HDEL', B, unpack(ARGV, 2))
if gone > 0 then call('HSET', M, 'in_flight', int(flight - gone)) end
return all and 0 or out
