-- Notes that a topic is being created, and gives the new life its number.
--
-- KEYS  1 topics (HASH)  2 unfinished work (HASH)  3 lives (HASH): the last number under "", and for each name
--       that was deleted the last life of it that was
-- ARGV  1 topic  2 unfinished work seen, empty: none  3 the note as it goes on behind its life
--       4 the highest life that was found in a shard of this name  5 see not_after
-- Errors  LIVES: there are no more numbers
-- Returns  the life, or "0": the topic is there, or the unfinished work is another
-- Cost  O(1)
local call = redis.call
local work = call('HGET', KEYS[2], ARGV[1]) or ''
if #work > #ARGV[3] and string.sub(work, -#ARGV[3]) == ARGV[3] then
  -- This very note, repeated: it writes again what is there, for who waits until that is replicated.
  call('HSET', KEYS[2], ARGV[1], work)
  return string.match(work, '^{"life":(%d+),')
end
if call('HEXISTS', KEYS[1], ARGV[1]) == 1 or work ~= ARGV[2] then return '0' end
-- At least the seconds of the clock. A counter that was lost then goes on above what it had, and a deletion that
-- was noted before the loss and is carried out after it still finds a later life. And a number that a failover
-- took back is not given again, to a life that a node with the earlier record would take for its own. Shards with
-- messages need no such number.
local LIVES_MAX = 8589934592
local seconds = tonumber(call('TIME')[1])
if seconds >= LIVES_MAX / 2 then seconds = 0 end
local life = math.max(seconds, tonumber(call('HGET', KEYS[3], '') or '0'), tonumber(ARGV[4]),
  tonumber(call('HGET', KEYS[3], ARGV[1]) or '0')) + 1
if life >= LIVES_MAX then return redis.error_reply('LIVES the numbers of lives are used up') end
life = string.format('%.0f', life)
call('HSET', KEYS[3], '', life)
call('HSET', KEYS[2], ARGV[1], '{"life":' .. life .. ',' .. ARGV[3])
return life
