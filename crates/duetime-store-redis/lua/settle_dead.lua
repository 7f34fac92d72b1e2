-- Redrives dead letters, due at once with all attempts given back, or removes them for good.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 since, 3 slot, 4 name: see recall  5 r(edrive) or p(urge)  6 channel of the hints
--       7 hint up to its time  8 and on: ids
-- Errors  SKEW ms, of a redrive | FORGOTTEN, NEVER: see recall
-- Returns  a list: 1 done, 0 not a dead letter
-- Cost  O(n log N), three calls an item
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local now, _, skewed = present()
local redrive, out, done = A[5] == 'r', {}, false
if redrive and skewed then return skewed end
for i = 8, #A do
  local id = A[i]
  if id ~= '' and call('ZREM', D, id) == 1 then
    call('HDEL', I, id)
    if redrive then call('ZADD', Z, int(now * 1000), id) else call('HDEL', B, id) end
    out[#out + 1], done = 1, true
  else
    out[#out + 1] = 0
  end
end
if done then call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out)) end
if done and redrive then redis.pcall('PUBLISH', A[6], A[7] .. int(now)) end
return out
