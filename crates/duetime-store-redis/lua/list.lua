-- Reads one page of live messages by score, and by id among equal scores. Writes nothing.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 lowest score  3 how many  4 and 5, if the page goes on after a message: its score and id
-- Returns  {ids and scores in turn; the same of all that is on its way to another shard, see take, in no order}
-- Cost  O(log² N + page), while messages move O(bytes of a batch) more: where the message is not there any more, its
--       place is looked for by halves
local low = call('ZCOUNT', Z, '-inf', '(' .. (ARGV[4] or ARGV[2]))
if ARGV[4] then
  -- Not by `<`, which follows the language that the server is set to.
  local function after(id)
    local last = ARGV[5]
    for i = 1, math.min(#id, #last) do
      local a, b = byte(id, i), byte(last, i)
      if a ~= b then return a > b end
    end
    return #id > #last
  end
  local high = low + call('ZCOUNT', Z, ARGV[4], ARGV[4])
  while low < high do
    local middle = math.floor((low + high) / 2)
    if after(call('ZRANGE', Z, middle, middle)[1]) then high = middle else low = middle + 1 end
  end
end
local page, moving = call('ZRANGE', Z, low, low + ARGV[3] - 1, 'WITHSCORES'), {}
local frozen = call('HLEN', KEYS[6]) > 1 and call('HGETALL', KEYS[6]) or {} -- at most 256 messages and the name
for i = 1, #frozen, 2 do
  local kind, score = string.match(frozen[i + 1], '^([lL])([^ ]+) ')
  if kind and frozen[i] ~= '' then moving[#moving + 1], moving[#moving + 2] = frozen[i], score end
end
return { page, moving }
