-- Settles claims one by one: acks and all else in one batch.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 "1": repeated, the first answer was lost  3 request (8 bytes)  4 caller's present in ms
--       5 n, then n times: id, claimed score, kind, value, class:
--       a(ck) | n(ack): delay in ms | r(elease) | e(xtend): visibility in ms, class | b(ury): reason
-- Errors  SKEW ms, where a delay or a visibility is in the batch
-- Returns  a list: 0 expired, 1 ok, else the new score of an extended claim
-- Cost  O(n log N), two to six calls an item
local repeated, request, n, at = ARGV[2] == '1', ARGV[3], tonumber(ARGV[5]), 6
local refused = skewed()
for i = 1, refused and n or 0 do
  local kind = ARGV[5 * i + 3]
  if kind == 'n' or kind == 'e' then return refused end
end
local now, out, bases, before = earlier, {}, {}, flight
local known = recall(request)
for i = 1, n do
  local id, claimed, kind, value, class = unpack(ARGV, at, at + 4)
  at = at + 5
  local mine = tonumber(claimed)
  local tries = mine % 100
  local s = call('ZSCORE', Z, id)
  local is = s and tonumber(s)
  out[i] = 1
  if is == mine then
    if kind ~= 'e' then flight = flight - 1 end
    if kind == 'a' then
      call('ZREM', Z, id)
      call('HDEL', B, id)
    elseif kind == 'n' then
      call('ZADD', Z, int((later + value) * 1000 + tries), id)
    elseif kind == 'r' then
      local body = call('HGET', B, id)
      local due = body and #body > 8 and struct.unpack('>I8', body, 2) or now
      call('ZADD', Z, int(due * 1000 + math.max(tries - 1, 0)), id)
    elseif kind == 'b' then
      bury(id, tries, value, false, now)
    else
      local base = bases[class .. value]
      if not base then
        local deadline, given = give(now + value, tonumber(value), tonumber(class))
        base = deadline * 1000 + given * 100
        bases[class .. value] = base
        call('HSET', M, 'd' .. given, int(deadline), remember(request, base))
      end
      call('ZADD', Z, int(base + tries), id)
      out[i] = base + tries
    end
  -- What the first answer said, where it can be told.
  elseif kind == 'e' and is and known and is - is % 100 == known then
    out[i] = is
  elseif repeated and (kind == 'a' or kind == 'b') and not s then
    -- Gone: done, or a dead letter.
  elseif repeated and kind == 'n' and is and is % 1000 == tries then
    -- Waiting for its retry.
  elseif repeated and kind == 'r' and is and is % 1000 == tries - 1 then
    -- Back where it was.
  else
    out[i] = 0
  end
end
if flight ~= before then call('HSET', M, 'in_flight', int(flight)) end
return out
