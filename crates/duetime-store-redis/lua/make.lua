-- Part of the scripts that make shards.
--
-- make(epoch, rid, shards, previous, state, born, seed): an empty shard, in the place of what was left there.
-- KEYS  1 messages  2 bodies  3 dead letters  4 reasons  5 meta  6 outbox (HASH)  7 moved (HASH)
-- ARGV  none of its own
-- Returns  nothing
-- Cost  O(1); what is left over is freed in the background
-- Every key has an entry that is never claimed, so that all always exist: while a cluster slot
-- moves, a script on a key that does not exist is turned away. That of the outbox is the name of its
-- batch: last number, nonce ("-": it is empty), destination.
local call = redis.call
local function make(epoch, rid, shards, previous, state, born, seed)
  call('UNLINK', unpack(KEYS))
  call('ZADD', KEYS[1], 'inf', '')
  call('HSET', KEYS[2], '', '')
  call('ZADD', KEYS[3], 'inf', '')
  call('HSET', KEYS[4], '', '')
  call('HSET', KEYS[5], 'epoch', epoch, 'hw', '0', 'in_flight', '0', 'body_max', '0', 'd1', '0', 'rqn', '0',
    'rid', rid, 'shards', shards, 'previous', previous, 'state', state, 'born', born, 'seed', seed)
  call('HSET', KEYS[6], '', '0 - 0')
  call('HSET', KEYS[7], '', '')
end
