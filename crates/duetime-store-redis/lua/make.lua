-- Part of the scripts that make shards.
--
-- life_of(epoch): the number of the topic's life an epoch belongs to.
-- held(): how many messages, dead letters and frozen messages the shard's keys hold.
-- make(epoch, rid, shards, previous, state, seed): an empty shard, instead of what was left there.
-- KEYS  1 messages  2 bodies  3 dead letters  4 reasons  5 meta  6 outbox (HASH)  7 moved (HASH); the last one, where
--       the topic has a watermark: see watermark
-- ARGV  none of its own
-- Returns  nothing
-- Cost  O(1); what is left over is freed in the background
-- Every key has an entry that is never claimed, so that all always exist: while a cluster slot
-- moves, a script on a key that does not exist is turned away. That of the outbox is the name of its
-- batch: last number, nonce ("-": it is empty), destination.
local call, format = redis.call, string.format
local LIFE = 1048576
local function life_of(epoch) return math.floor(tonumber(epoch) / LIFE) end
local function held()
  return call('ZCARD', KEYS[1]) - (call('ZSCORE', KEYS[1], '') and 1 or 0)
    + call('ZCARD', KEYS[3]) - (call('ZSCORE', KEYS[3], '') and 1 or 0)
    + call('HLEN', KEYS[6]) - call('HEXISTS', KEYS[6], '')
end
local function make(epoch, rid, shards, previous, state, seed)
  -- The meta of a removed shard ends by itself some day; its name must not pass that on.
  call('UNLINK', unpack(KEYS))
  call('ZADD', KEYS[1], 'inf', '')
  call('HSET', KEYS[2], '', '')
  call('ZADD', KEYS[3], 'inf', '')
  call('HSET', KEYS[4], '', '')
  call('HSET', KEYS[5], 'epoch', epoch, 'in_flight', '0', 'body_max', '0', 'd1', '0', 'rqn', '0',
    'rid', rid, 'shards', shards, 'previous', previous, 'state', state, 'seed', seed)
  call('HSET', KEYS[6], '', '0 - 0')
  call('HSET', KEYS[7], '', '')
  if string.sub(KEYS[#KEYS], -7) == ':undone' then call('ZADD', KEYS[#KEYS], 'inf', '') end
end
