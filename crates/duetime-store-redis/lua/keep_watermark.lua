-- Keeps a topic's watermark beside its first shard, where none that is later is kept.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 the watermark in ms
-- Returns  the one that is kept then
-- Cost  O(1)
local kept = math.max(tonumber(ARGV[2]), tonumber(call('HGET', M, 'watermark') or 0))
call('HSET', M, 'watermark', int(kept))
return kept
