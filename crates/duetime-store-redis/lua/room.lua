-- Whether the server takes new messages. No allow-oom: a full one refuses it.
--
-- KEYS  the shard's seven, see make
-- ARGV  none of its own
-- Returns  1
-- Cost  O(1)
-- Redis 6.2 refuses the first write.
call('HSET', KEYS[7], '', '')
return 1
