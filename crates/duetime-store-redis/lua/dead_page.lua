-- Reads one page of dead letters, oldest first. Writes nothing.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 score to start at, "-inf" for the oldest  3 how many
-- Returns  {ids and scores in turn, bodies, attempts and reasons}
-- Cost  O(log N + page), three calls
local page = call('ZRANGEBYSCORE', D, ARGV[2], '(+inf', 'WITHSCORES', 'LIMIT', '0', ARGV[3])
local ids = {}
for i = 1, #page, 2 do ids[#ids + 1] = page[i] end
if not ids[1] then return { page, {}, {} } end
return { page, call('HMGET', B, unpack(ids)), call('HMGET', I, unpack(ids)) }
