-- Reads one page of dead letters, oldest first. Writes nothing.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 score to start at, "-inf" for the oldest  3 how many
-- Returns  {ids and scores in turn, bodies, attempts and reasons; ids and messages in turn of all dead letters that
--          are on their way to another shard, see take, in no order}
-- Cost  O(log N + page), four calls; while messages move O(bytes of a batch) more
local page = call('ZRANGEBYSCORE', D, ARGV[2], '(+inf', 'WITHSCORES', 'LIMIT', '0', ARGV[3])
local ids = {}
for i = 1, #page, 2 do ids[#ids + 1] = page[i] end
local moving, frozen = {}, call('HLEN', KEYS[6]) > 1 and call('HGETALL', KEYS[6]) or {} -- at most 256 and the name
for i = 1, #frozen, 2 do
  local kind = byte(frozen[i + 1])
  if frozen[i] ~= '' and (kind == 100 or kind == 68) then
    moving[#moving + 1], moving[#moving + 2] = frozen[i], frozen[i + 1]
  end
end
if not ids[1] then return { page, {}, {}, moving } end
return { page, call('HMGET', B, unpack(ids)), call('HMGET', I, unpack(ids)), moving }
