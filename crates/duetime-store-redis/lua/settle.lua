-- Settles claims one by one: acks and all else in one batch.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 since, 3 slot, 4 name: see recall
--       5 n, then n times: id, claimed score, kind, value, class:
--       a(ck) | t(ake out, to hand it out) | x, expired | n(ack), d(efer): delay in ms, 9 where a hand-over had no
--       answer | r(elease) | e(xtend): visibility in ms, class | b(ury): reason
--       s(ucceeded by the next of its series, in its place), y, the same where it has expired: body, due time in ms
-- Errors  SKEW ms, where a delay, a visibility or the next of a series is in the batch
--         FORGOTTEN, NEVER: see recall, where not to act
-- Returns  a list: 0 expired, 1 ok, 2 an ack that was done already, else the new score of an extended claim
-- Cost  O(n log N), two to six calls an item, and the bytes of bodies
-- A repetition that nothing is remembered for is answered by the state that the first sending would have left; not
-- where something is taken out: that it is gone does not say who took it. The next of a series is known by its nonce.
if before then return cmsgpack.unpack(before) end
if refused and byte(since) == 63 then return refused end
local earlier, later, skewed = present()
local n, at, repeated = tonumber(A[5]), 6, refused ~= nil
for i = 1, (skewed or refused) and n or 0 do
  local kind = A[5 * i + 3]
  if refused and kind == 't' then return refused end
  if skewed and (kind == 'n' or kind == 'd' or kind == 'e' or kind == 's' or kind == 'y') then return skewed end
end
local now, out, bases, flew, done = earlier, {}, {}, flight, false
local lost, lost_at = {}, {}
local function nonce_of(body) return body and sub(body, NONCE_AT, NONCE_END) end
for i = 1, n do
  local id, claimed, kind, value, class = unpack(A, at, at + 4)
  at = at + 5
  local acked, follows = kind == 'a' or kind == 's', kind == 's' or kind == 'y'
  if kind == 't' then kind = 'a' end
  local mine = tonumber(claimed)
  local tries = mine % 100
  local mark = class == '9' and 900 or 0
  local s = call('ZSCORE', Z, id)
  local is = s and tonumber(s)
  out[i] = 1
  if is == mine then
    done = true
    if kind ~= 'e' then flight = flight - 1 end
    if kind == 'a' or kind == 'x' then
      if remembers then ended(kind == 'a' and DELIVERED or EXPIRED, id, call('HGET', B, id), claimed) end
      call('ZREM', Z, id)
      if U then call('ZREM', U, id) end
      call('HDEL', B, id)
    elseif follows then
      if remembers then ended(kind == 's' and DELIVERED or EXPIRED, id, call('HGET', B, id), claimed) end
      call('HSET', B, id, value)
      call('ZADD', Z, int(class * 1000), id)
      if U then call('ZREM', U, id) end
      if #value - meta[2] > 0 then
        meta[2] = #value
        call('HSET', M, 'body_max', #value)
      end
    elseif kind == 'n' then
      call('ZADD', Z, int((later + value) * 1000 + mark + tries), id)
    elseif kind == 'd' then
      call('ZADD', Z, int((later + value) * 1000 + mark + math.max(tries - 1, 0)), id)
    elseif kind == 'r' then
      local body = call('HGET', B, id)
      local due = body and #body >= DUE_END and struct.unpack(DUE, body, DUE_AT) or now
      call('ZADD', Z, int(due * 1000 + math.max(tries - 1, 0)), id)
    elseif kind == 'b' then
      bury(id, tries, value, false, now)
    else
      local base = bases[class .. value]
      if not base then
        local deadline, given = give(later + value, tonumber(value), tonumber(class))
        base = deadline * 1000 + given * 100
        bases[class .. value] = base
        call('HSET', M, 'd' .. given, int(deadline))
      end
      call('ZADD', Z, int(base + tries), id)
      out[i] = base + tries
    end
  elseif repeated and (kind == 'a' or kind == 'b' or kind == 'x') and not s then
    -- Gone: done, or a dead letter.
  elseif repeated and follows and nonce_of(call('HGET', B, id)) == nonce_of(value) then
    -- The next one is there.
  elseif repeated and kind == 'n' and is and is % 1000 == mark + tries then
    -- Waiting for its retry.
  elseif repeated and (kind == 'r' or kind == 'd') and is and is % 1000 == mark + tries - 1 then
    -- Back where it was.
  else
    out[i] = 0
    if acked then lost[#lost + 1], lost_at[#lost + 1] = id, i end
  end
end
if remembers then
  write_past()
  local past = remembered(lost)
  for k, i in ipairs(lost_at) do
    if past[k] and is_ack_of(past[k], A[5 * i + 2]) then out[i] = 2 end
  end
end
if flight ~= flew then call('HSET', M, 'in_flight', int(flight)) end
if done then call('HSET', B, slot, name .. ' ' .. cmsgpack.pack(out)) end
return out
