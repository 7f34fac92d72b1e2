-- Creates one empty shard of a topic's new life. Repeated with the same record it changes nothing. What an
-- unfinished creation or deletion left is removed first, but never messages of a life that nobody deleted.
--
-- KEYS  the shard's seven, see make
-- ARGV  1 epoch  2 rid  3 shards  4 previous shards  5 state  6 seed of the hash of ids, or ""
--       7 last life of the name that is known to be deleted  8 copy of the topic's settings, or ""  9 see not_after
-- Errors  OVERTAKEN life: the shard has this life or a later one, or this one is deleted |
--         OCCUPIED messages life: it holds messages of another life
-- Returns  1 created, 0 it was there
-- Cost  O(1)
local there = call('HMGET', KEYS[5], 'epoch', 'rid', 'gone')
local life = life_of(ARGV[1])
if there[1] == ARGV[1] and there[2] == ARGV[2] then
  -- A write, for who waits until it is replicated.
  call('HSET', KEYS[5], 'rid', ARGV[2])
  return 0
end
if there[3] and tonumber(there[3]) >= life then return redis.error_reply('OVERTAKEN ' .. there[3]) end
local was = there[1] and life_of(there[1])
if was and was >= life then return redis.error_reply('OVERTAKEN ' .. format('%.0f', was)) end
if held() > 0 and not (was and was <= tonumber(ARGV[7])) then
  return redis.error_reply('OCCUPIED ' .. format('%.0f', held()) .. ' ' .. (was and format('%.0f', was) or '-'))
end
make(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
if ARGV[8] ~= '' then call('HSET', KEYS[7], 'settings', ARGV[8]) end
return 1
