-- Hands over places to a shard that is new while the shard count changes: so many of its messages may be in flight.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 how many there are by now
-- Returns  how many are in flight
-- Cost  O(1)
-- What was handed over is not taken back; another record begins with none, see fence.
call('HSET', M, 'places', int(math.max(tonumber(call('HGET', M, 'places') or '0'), tonumber(ARGV[2]))))
return flight
