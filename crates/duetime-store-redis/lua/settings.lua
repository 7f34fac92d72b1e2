-- Keeps a copy of a topic's settings beside a shard, where it outlives the hash of topics.
--
-- KEYS  the shard's seven, see make
-- ARGV  1 life of the topic  2 version of the settings  3 the copy: version, a space, the record as JSON
-- Returns  1 kept, 0 the shard is another life's, or has a newer copy
-- Cost  O(1)
-- Kept in the hash of moved batches: every field of meta is short, so that reading it stays cheap.
local epoch = redis.call('HGET', KEYS[5], 'epoch')
if not epoch or math.floor(tonumber(epoch) / 1048576) ~= tonumber(ARGV[1]) then return 0 end
local there = tonumber(string.match(redis.call('HGET', KEYS[7], 'settings') or '0', '^%d+'))
if there > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[7], 'settings', ARGV[3])
return 1
