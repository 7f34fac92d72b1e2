-- Swaps one small record, a bulk plan or a sink, if it is what the caller saw.
--
-- KEYS  1 records of its kind (HASH); the empty field has the highest version that any had
-- ARGV  1 id  2 text seen, empty: none  3 new text, empty: remove  4 most records
--       5 "1": repeated, the first answer was lost  6 version of the new text, or of what is removed, empty: none
--       7 see not_after
-- Returns  1 done, 0 it is another or the version is not above all before, -1 there are as many as may be
-- Cost  O(1)
local there = redis.call('HGET', KEYS[1], ARGV[1]) or ''
-- Repeated, it writes again what is there, for who waits until that is replicated.
local is_done = ARGV[5] == '1' and there == ARGV[3]
if there ~= ARGV[2] and not is_done then return 0 end
local last, version = tonumber(redis.call('HGET', KEYS[1], '') or 0) or 0, tonumber(ARGV[6])
if version and version <= last and ARGV[3] ~= '' and not is_done then return 0 end
local records = redis.call('HLEN', KEYS[1]) - redis.call('HEXISTS', KEYS[1], '')
if there == '' and ARGV[3] ~= '' and records >= tonumber(ARGV[4]) then return -1 end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
if version and version > last then redis.call('HSET', KEYS[1], '', ARGV[6]) end
return 1
