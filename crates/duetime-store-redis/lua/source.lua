-- Part of the scripts on ids at their source shard: acts on those that live here, and answers which these were.
--
-- Before it stands act(A), the script for a home, with its arguments from 1 on; see recall for the first answer.
-- FIRST, STRIDE: where its items begin, and how long each is, its id first; COUNT: where their number is, or nil;
-- LETTERS: which arguments are strings with a letter for each item, where a second section of pairs follows (enqueue),
-- or nil; CACHED: the answer is kept; decides(args, i, from, past): what is remembered of an id is the answer to it.
-- KEYS  6 outbox  7 moved; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall  5 n  6 and on: what act has from its 2 on
-- Returns  {list: 0 it was there, or what is remembered of it decides, 1 absent, 2 frozen; answer of act, or 0; where
--          it remembers, the outcome of each that is absent, or ""}
-- Cost  O(n), up to six calls
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local O, total, args, ids = KEYS[6], tonumber(ARGV[5]), { ARGV[1] }, {}
for i = 6, #ARGV do args[i - 4] = ARGV[i] end
for i = 1, total do ids[i] = args[FIRST + (i - 1) * STRIDE] end
local live = call('ZMSCORE', Z, unpack(ids))
local dead = call('ZCARD', D) > 1 and call('ZMSCORE', D, unpack(ids)) or {}
local frozen = call('HLEN', O) > 1 and call('HMGET', O, unpack(ids)) or {}
local found, kept, there, second, became = {}, {}, 0, {}, {}
local gone, gone_at, past, died = {}, {}, {}, false
for i = 1, remembers and total or 0 do
  became[i] = ''
  if not (live[i] or dead[i] or frozen[i]) then gone[#gone + 1], gone_at[#gone + 1] = ids[i], i end
end
local of_gone = remembers and remembered(gone) or {}
for k, i in ipairs(gone_at) do past[i] = of_gone[k] end
for i = 1, FIRST - 1 do kept[i] = args[i] end
for _, at in ipairs(LETTERS or {}) do kept[at] = '' end
for i = 1, total do
  local from = FIRST + (i - 1) * STRIDE
  found[i] = frozen[i] and 2 or (live[i] or dead[i] or past[i] and decides(args, i, from, past[i])) and 0 or 1
  if found[i] == 1 and past[i] then became[i] = past[i] end
  if found[i] == 0 then
    there, died = there + 1, died or dead[i]
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
-- A scan looks at the living first: what was dead may live by now, and be in neither part of it.
if CACHED and died then call('HSET', M, 'revived', int((call('HGET', M, 'revived') or 0) + 1)) end
local whole = remembers and { found, answer, became } or { found, answer }
-- Absence counts only when replicated: WAIT waits for a write.
if CACHED then
  call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(whole))
else
  call('HSET', KEYS[7], '', '')
end
return whole
