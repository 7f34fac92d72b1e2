-- Swaps one small record, a bulk plan or a sink, if it is what the caller saw.
--
-- KEYS  1 records of its kind (HASH)
-- ARGV  1 id  2 text seen, empty: none  3 new text, empty: remove  4 most records
--       5 "1": repeated, the first answer was lost  6 see not_after
-- Returns  1 done, 0 it is another, -1 there are as many as may be
-- Cost  O(1)
local there = redis.call('HGET', KEYS[1], ARGV[1]) or ''
-- Repeated, it writes again what is there, for who waits until that is replicated.
if there ~= ARGV[2] and not (ARGV[5] == '1' and there == ARGV[3]) then return 0 end
if there == '' and ARGV[3] ~= '' and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return -1 end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
return 1
