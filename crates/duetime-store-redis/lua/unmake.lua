-- Removes a shard of a topic that was deleted, unless it is another's by now.
--
-- KEYS  the shard's seven, see make  8 the stream
-- ARGV  1 rid, empty: any  2 when the topic was created, ms  3 see not_after
-- Returns  1 removed, 0 it is gone or another's
-- Cost  O(1); what it held is freed in the background
local there = redis.call('HMGET', KEYS[5], 'rid', 'born')
if ARGV[1] ~= '' and there[1] ~= ARGV[1] or there[2] ~= ARGV[2] then return 0 end
redis.call('UNLINK', unpack(KEYS))
return 1
