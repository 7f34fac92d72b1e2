-- Redrives dead letters, due at once with all attempts given back and one redrive more counted in their bodies, or
-- removes them for good: by id, or the oldest that are kept no longer.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall  5 r(edrive), p(urge) or x, expire  6 channel of the hints
--       7 hint up to its time  8 and on: ids; of x: 8 ms since their death, "": any age  9 how many of the newest are
--       kept  10 how many of the others go at most, whatever their age
-- Errors  SKEW ms, of a redrive or x | FORGOTTEN, NEVER: see recall
-- Returns  a list: 1 done, 0 not a dead letter
-- Cost  O(n log N), three calls an item, one more of p that is not there; one that is redriven costs five, and
--       O(bytes of its body)
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local now, _, skewed = present()
local redrive, out, done, longest = A[5] == 'r', {}, false, tonumber(meta[2])
local ids, first, lost = A, 8, {}
if (redrive or A[5] == 'x') and skewed then return skewed end
if A[5] == 'x' then
  local old = A[8] ~= '' and call('ZCOUNT', D, '-inf', int((now - A[8]) * 1000 + 999)) or 0
  local beyond = math.min(call('ZCARD', D) - 1 - A[9], tonumber(A[10]))
  -- What is remembered of each is read from its body.
  local most = remembers and math.max(1, math.floor(1048576 / math.max(longest, 1))) or 256
  local count = math.min(256, most, math.max(old, beyond))
  ids, first = count > 0 and call('ZRANGE', D, 0, count - 1) or {}, 1
end
for i = first, #ids do
  local id = ids[i]
  if id ~= '' and call('ZREM', D, id) == 1 then
    if remembers and not redrive then
      local attempts = string.match(call('HGET', I, id) or '', '^%d+') or 0
      ended(DEAD, id, call('HGET', B, id), attempts)
    end
    call('HDEL', I, id)
    if redrive then
      local body = call('HGET', B, id)
      local counted = body and redriven(body)
      if counted then
        call('HSET', B, id, counted)
        longest = math.max(longest, #counted)
      end
      call('ZADD', Z, int(now * 1000), id)
    else
      call('HDEL', B, id)
    end
    out[#out + 1], done = 1, true
  else
    out[#out + 1] = 0
    if A[5] == 'p' and id ~= '' then lost[#lost + 1] = id end
  end
end
if remembers then
  write_past()
  -- What a bulk plan took out is gone for good then, as for cancel.
  local past = remembered(lost)
  for k, id in ipairs(lost) do
    if past[k] then unmark(id, past[k]) end
  end
end
if longest > tonumber(meta[2]) then call('HSET', M, 'body_max', int(longest)) end
if done then call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out)) end
if done and redrive then redis.pcall('PUBLISH', A[6], A[7] .. int(now)) end
return out
