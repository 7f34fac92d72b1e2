-- Keeps beside the topic's first shard that another shard was made for a change of the routing: if that one is
-- gone afterwards, it is lost and not new.
--
-- KEYS  the shard's seven, see make
-- ARGV  1 life of the topic  2 index of the shard that was made  3 epoch of the change  4 see not_after
-- Returns  1 kept, 0 the first shard is another life's
-- Cost  O(1)
local epoch = redis.call('HGET', KEYS[5], 'epoch')
if not epoch or math.floor(tonumber(epoch) / 1048576) ~= tonumber(ARGV[1]) then return 0 end
local field = 'made:' .. ARGV[2]
local there = tonumber(redis.call('HGET', KEYS[7], field) or '0')
redis.call('HSET', KEYS[7], field, string.format('%.0f', math.max(there, tonumber(ARGV[3]))))
return 1
