-- Removes a shard of a deleted life, and what earlier lives left there. A later life's is not touched.
--
-- KEYS  the shard's seven, see make, and its stream
-- ARGV  1 number of the life that is deleted  2 how long the place remembers that, ms  3 see not_after
-- Returns  1 removed, 0 it is a later life's
-- Cost  O(1); what it held is freed in the background
-- What stays is a meta without an epoch: for a while it refuses whoever would make a shard of that life again.
local there = redis.call('HMGET', KEYS[5], 'epoch', 'gone')
local life = tonumber(ARGV[1])
if there[1] and math.floor(tonumber(there[1]) / 1048576) > life then return 0 end
redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', KEYS[5], 'gone', string.format('%.0f', math.max(life, tonumber(there[2] or '0'))))
redis.call('PEXPIRE', KEYS[5], ARGV[2])
return 1
