-- Swaps one field of the hash of topics, and one of the hash of unfinished work, if the first has
-- the value the caller saw.
--
-- KEYS  1 topics (HASH)  2 unfinished work (HASH)
-- ARGV  1 topic  2 value seen, empty: none  3 new value, empty: remove
--       4 new unfinished work, empty: remove  5 "1": repeated, the first answer was lost
--       6 see not_after
-- Returns  1 done, 0 the value is another
-- Cost  O(1)
local there = redis.call('HGET', KEYS[1], ARGV[1]) or ''
-- Repeated, it writes again what is there, for who waits until that is replicated.
local done = ARGV[5] == '1' and there == ARGV[3]
if there ~= ARGV[2] and not done then return 0 end
if ARGV[4] == '' then redis.call('HDEL', KEYS[2], ARGV[1]) else redis.call('HSET', KEYS[2], ARGV[1], ARGV[4]) end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
return 1
