-- Swaps one field of the hash of topics, and one of the hash of unfinished work, if the first has
-- the value the caller saw, and where it has none, the second too.
--
-- KEYS  1 topics (HASH)  2 unfinished work (HASH)  3 lives (HASH), see topic_note
-- ARGV  1 topic  2 value seen, empty: none  3 new value, empty: remove  4 unfinished work seen, empty: none
--       5 new unfinished work, empty: remove  6 life of the new value  7 life that is deleted hereby, empty: none
--       8 "1": repeated, the first answer was lost  9 see not_after
-- Returns  1 done, 0 the value is another, or its life is deleted
-- Cost  O(1)
local there = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local work = redis.call('HGET', KEYS[2], ARGV[1]) or ''
local gone = tonumber(redis.call('HGET', KEYS[3], ARGV[1]) or '-1')
-- Repeated, it writes again what is there, for who waits until that is replicated.
if not (ARGV[8] == '1' and there == ARGV[3] and work == ARGV[5]) then
  if there ~= ARGV[2] or there == '' and work ~= ARGV[4] then return 0 end
  if there == '' and ARGV[3] ~= '' and tonumber(ARGV[6]) <= gone then return 0 end
end
if ARGV[7] ~= '' and tonumber(ARGV[7]) > gone then redis.call('HSET', KEYS[3], ARGV[1], ARGV[7]) end
if ARGV[5] == '' then redis.call('HDEL', KEYS[2], ARGV[1]) else redis.call('HSET', KEYS[2], ARGV[1], ARGV[5]) end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
return 1
