-- Redrives dead letters, due at once with all attempts given back and one redrive more counted in their bodies, or
-- removes them for good.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall  5 r(edrive) or p(urge)  6 channel of the hints
--       7 hint up to its time  8 and on: ids
-- Errors  SKEW ms, of a redrive | FORGOTTEN, NEVER: see recall
-- Returns  a list: 1 done, 0 not a dead letter
-- Cost  O(n log N), three calls an item, five and O(bytes of its body) for one that is redriven
if before then return cmsgpack.unpack(before) end
if refused then return refused end
local now, _, skewed = present()
local redrive, out, done, longest = A[5] == 'r', {}, false, tonumber(meta[2])
if redrive and skewed then return skewed end
for i = 8, #A do
  local id = A[i]
  if id ~= '' and call('ZREM', D, id) == 1 then
    if remembers and not redrive then
      ended(DEAD, id, call('HGET', B, id), string.match(call('HGET', I, id) or '', '^%d+') or 0)
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
  end
end
if remembers then write_past() end
if longest > tonumber(meta[2]) then call('HSET', M, 'body_max', int(longest)) end
if done then call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out)) end
if done and redrive then redis.pcall('PUBLISH', A[6], A[7] .. int(now)) end
return out
