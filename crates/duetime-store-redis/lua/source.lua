-- Part of the scripts on ids at their source shard: acts on those that live here, and answers which these were.
--
-- Before it stands act(A), the script for a home, with its arguments from 1 on; see recall for the first answer.
-- FIRST, STRIDE: where its items begin, and how long each is, its id first; COUNT: where their number is, or nil;
-- LETTERS: which arguments are strings with a letter for each item, where a second section of pairs follows (enqueue),
-- or nil; CACHED: the answer is kept.
-- KEYS  6 outbox  7 moved
-- ARGV  2 since, 3 slot, 4 name: see recall  5 n  6 and on: what act has from its 2 on
-- Returns  {list: 0 it was there, 1 absent, 2 frozen, answer of act, or 0}
-- Cost  O(n), up to four calls
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local O, total, args, ids = KEYS[6], tonumber(ARGV[5]), { ARGV[1] }, {}
for i = 6, #ARGV do args[i - 4] = ARGV[i] end
for i = 1, total do ids[i] = args[FIRST + (i - 1) * STRIDE] end
local live = call('ZMSCORE', Z, unpack(ids))
local dead = call('ZCARD', D) > 1 and call('ZMSCORE', D, unpack(ids)) or {}
local frozen = call('HLEN', O) > 1 and call('HMGET', O, unpack(ids)) or {}
local found, kept, there, second = {}, {}, 0, {}
for i = 1, FIRST - 1 do kept[i] = args[i] end
for _, at in ipairs(LETTERS or {}) do kept[at] = '' end
for i = 1, total do
  found[i] = frozen[i] and 2 or (live[i] or dead[i]) and 0 or 1
  if found[i] == 0 then
    there = there + 1
    local from = FIRST + (i - 1) * STRIDE
    for k = from, from + STRIDE - 1 do kept[#kept + 1] = args[k] end
    if LETTERS then
      for _, at in ipairs(LETTERS) do kept[at] = kept[at] .. sub(args[at], i, i) end
      second[#second + 1], second[#second + 2] = args[from + 2 * total], args[from + 2 * total + 1]
    end
  end
end
for i = 1, #second do kept[#kept + 1] = second[i] end
if COUNT then kept[COUNT] = int(there) end
local answer = there > 0 and act(kept) or 0
if type(answer) == 'table' and answer.err then return answer end
local whole = { found, answer }
-- Absence counts only when replicated: WAIT waits for a write.
if CACHED then
  call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(whole))
else
  call('HSET', KEYS[7], '', '')
end
return whole
