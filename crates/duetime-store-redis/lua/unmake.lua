-- Removes a shard that was made for a topic that was deleted meanwhile, unless it is another's by now.
--
-- KEYS  the shard's seven, see make
-- ARGV  1 rid  2 when the topic was created, ms
-- Returns  1 removed, 0 it is gone or another's
-- Cost  O(1); what it held is freed in the background
local there = redis.call('HMGET', KEYS[5], 'rid', 'born')
if there[1] ~= ARGV[1] or there[2] ~= ARGV[2] then return 0 end
redis.call('UNLINK', unpack(KEYS))
return 1
