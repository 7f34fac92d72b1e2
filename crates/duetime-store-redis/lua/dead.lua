-- Part of the scripts that make dead letters.
--
-- bury(id, attempts, reason, bodiless, now): the caller keeps `flight` right.
-- KEYS  the shard's five, see prelude
-- ARGV  none of its own
-- Returns  nothing
-- A dead letter's score is unique in its shard, so that it can be a page's cursor.
-- Cost  four calls, five where the topic has a watermark, O(log N)
local grave
local function bury(id, attempts, reason, bodiless, now)
  if not grave then
    local last = call('ZRANGE', D, -2, -2, 'WITHSCORES')
    grave = last[2] and tonumber(last[2]) or 0
  end
  grave = math.max(now * 1000, grave + 1)
  call('ZREM', Z, id)
  if U then call('ZREM', U, id) end
  call('ZADD', D, int(grave), id)
  call('HSET', I, id, attempts .. ' ' .. reason)
  if bodiless then
    call('HSET', B, id, struct.pack(HEAD .. 'I8B', VERSION, now, 0, 0))
  end
end
