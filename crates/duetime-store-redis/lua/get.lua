-- Reads messages as one moment sees them. Writes nothing.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 and on: ids
-- Returns  {scores, bodies, scores as dead letters, attempts and reasons}
-- Cost  O(n), four calls
return {
  call('ZMSCORE', Z, unpack(A, 2)), call('HMGET', B, unpack(A, 2)),
  call('ZMSCORE', D, unpack(A, 2)), call('HMGET', I, unpack(A, 2)),
}
