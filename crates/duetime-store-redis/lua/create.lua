-- Creates one empty shard. Repeated with the same record it changes nothing; a left-over of an
-- unfinished creation or deletion (another rid) is removed first.
--
-- KEYS  1 messages  2 bodies  3 dead letters  4 reasons  5 meta
-- ARGV  1 epoch  2 rid  3 shards  4 previous shards  5 state
-- Returns  1 created, 0 it was there
-- Cost  O(1); what is left over is freed in the background
-- Every key has an entry that is never claimed, so that all five always exist: while a cluster
-- slot moves, a script on a key that does not exist is turned away.
if redis.call('HGET', KEYS[5], 'rid') == ARGV[2] then return 0 end
redis.call('UNLINK', unpack(KEYS))
redis.call('ZADD', KEYS[1], 'inf', '')
redis.call('HSET', KEYS[2], '', '')
redis.call('ZADD', KEYS[3], 'inf', '')
redis.call('HSET', KEYS[4], '', '')
redis.call('HSET', KEYS[5], 'epoch', ARGV[1], 'hw', '0', 'in_flight', '0', 'body_max', '0', 'd1', '0', 'rqn', '0',
  'rid', ARGV[2], 'shards', ARGV[3], 'previous', ARGV[4], 'state', ARGV[5])
return 1
