-- Reads which batch of a source was put last.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 source
-- Returns  "number nonce", or nil
-- Cost  O(1)
-- What is remembered counts only when replicated: WAIT waits for a write.
call('HSET', KEYS[7], '', '')
return call('HGET', KEYS[7], ARGV[2])
