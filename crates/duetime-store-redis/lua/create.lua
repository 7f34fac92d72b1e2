-- Creates one empty shard. Repeated with the same record it changes nothing; a left-over of an
-- unfinished creation or deletion (another rid) is removed first.
--
-- KEYS  the shard's seven, see make
-- ARGV  1 epoch  2 rid  3 shards  4 previous shards  5 state  6 when the topic was created, ms
--       7 seed of the hash of ids, or ""  8 see not_after
-- Returns  1 created, 0 it was there
-- Cost  O(1)
if redis.call('HGET', KEYS[5], 'rid') == ARGV[2] then
  -- A write, for who waits until it is replicated.
  redis.call('HSET', KEYS[5], 'rid', ARGV[2])
  return 0
end
make(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])
return 1
