-- Reads one page of ids, of live messages or of dead letters.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 l(ive) or d(ead)  3 cursor, "0" to begin  4 about how many
-- Returns  {cursor of the next page, "0": there is none, ids and scores in turn, count of what revived: see source}
-- Cost  O(page)
local page = call('ZSCAN', ARGV[2] == 'l' and Z or D, ARGV[3], 'COUNT', ARGV[4])
-- What was seen counts only when replicated: WAIT waits for a write.
call('HSET', KEYS[7], '', '')
page[3] = tonumber(call('HGET', M, 'revived') or 0)
return page
