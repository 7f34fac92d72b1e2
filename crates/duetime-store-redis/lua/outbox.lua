-- Reads the outbox.
--
-- KEYS  the shard's seven, see make
-- ARGV  none of its own
-- Returns  '', "last number, nonce or -, destination", then id and message in turn, in no order
-- Cost  O(n)
call('HSET', KEYS[7], '', '')
return call('HGETALL', KEYS[6]) -- at most 256 messages and the name
