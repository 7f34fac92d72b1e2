-- Takes the oldest messages that are due: hidden until a deadline of this claim's own, or, at most
-- once, removed. Messages whose last claim ended without a verdict are taken apart from the others, and
-- one that had two attempts, or has only one left, alone.
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 caller's present in ms  3 limit  4 visibility in ms  5 class  6 attempts at most, see max_attempts
--       7 request (8 bytes)  8 bytes of bodies at most  9 to 11 retry: see backoff  12 "1": at most once
--       13 "1": repeated, the first answer was lost  14, 15 how many may be in flight: see bound
-- Errors  SKEW ms
-- Returns  {present, next score, due left, buried, expired, alone, base, attempts, ids, bodies, later present};
--          what is hidden counts from the later present; alone: 1 a suspect, plus 2 when this is the answer of an
--          earlier request again, plus 4: the bound is reached; score: base + attempts, one number if all are the same
-- Cost  O(limit log N), seven calls for fresh messages, six for one, one more for each that is none; bound has its own
-- A repetition after its deadline takes what it still holds anew. What was settled since has another score, or none.
local now, later, refused = present()
if refused then return refused end
local usual, max, request, once = tonumber(ARGV[6]), tonumber(ARGV[8]), ARGV[7], ARGV[12] == '1'
local function reply(buried, expired, alone, base, attempts, ids, bodies)
  local next = first()
  local left = tonumber(next) <= now * 1000 + 999 and call('ZCOUNT', Z, '-inf', int(now * 1000 + 999)) or 0
  return { now, next, left, buried, expired, is_full() and alone + 4 or alone, base, attempts, ids, bodies, later }
end
local known = recall(request)
if known == 0 then return reply(0, 0, 0, 0, 1, {}, {}) end
if known then
  local alone = known % 100
  local base, ids, attempts = known - alone, {}, {}
  local held = call('ZRANGEBYSCORE', Z, int(base), int(base + 99), 'WITHSCORES')
  for i = 1, #held, 2 do
    ids[#ids + 1], attempts[#attempts + 1] = held[i], tonumber(held[i + 1]) - base
  end
  if ids[1] and ARGV[13] == '1' and base <= now * 1000 + 999 then
    local z = {}
    local deadline, class = give(later + ARGV[4], tonumber(ARGV[4]), tonumber(ARGV[5]), meta[11], meta[12], meta[13])
    base = deadline * 1000 + class * 100
    for i = 1, #ids do z[2 * i - 1], z[2 * i] = int(base + attempts[i]), ids[i] end
    call('ZADD', Z, unpack(z))
    call('HSET', M, 'd' .. class, int(deadline), remember(request, base + alone))
  end
  return reply(0, 0, alone + 2, base, attempts, ids, ids[1] and call('HMGET', B, unpack(ids)) or {})
end
local limit, found = room(ARGV[3], now)
local got = limit == '0' and {} or due(now * 1000 + 999, limit)
if not got[1] then return reply(0, found, 0, 0, 1, got, got) end
local deadline, class = give(later + ARGV[4], tonumber(ARGV[4]), tonumber(ARGV[5]), meta[11], meta[12], meta[13])
local base = deadline * 1000 + class * 100
local n, ids, attempts, z, score, mixed = 0, {}, {}, {}, {}, false
local alone, expired, waits, dead, ran_out, was = 0, 0, {}, {}, {}, {}
for i = 1, #got, 2 do
  local id, s = got[i], got[i + 1]
  if #s < 3 then s = '00' .. s end
  local c1, c2, c3 = byte(s, -3, -1)
  local held, tries = c1 - 48, (c2 - 48) * 10 + c3 - 48
  if n > 0 and (held > 0) ~= (alone > 0) then break end
  local most = (held > 0 or tries > 0) and own_most(got, i, held > 0) or usual
  local single = held > 0 and (tries > 1 or most < 3)
  if bytes_read > max and i > 1 or n > 0 and single then break end
  local take = tries < most
  if held > 0 and held < 9 then expired = expired + 1 end
  if not take then
    local why = held > 0 and '; the last claim ended without a verdict' or ''
    dead[#dead + 1] = { id, tries, 'used up its ' .. tries .. ' attempts' .. why }
  elseif held > 0 and held < 9 then
    local back = math.floor(tonumber(s) / 1000) + math.floor(backoff(tries))
    take = back <= now
    if not take then waits[#waits + 1], waits[#waits + 2] = int(back * 1000 + 900 + tries), id end
  end
  if take then
    n, tries = n + 1, tries + 1
    if not score[tries] then score[tries] = int(base + tries) end
    ids[n], attempts[n], z[2 * n - 1], z[2 * n], was[id] = id, tries, score[tries], id, got[i + 1]
    if tries ~= attempts[1] then mixed = true end
    ran_out[n] = held > 0 and held < 9
    if held > 0 then alone = 1 end
    if single then break end
  end
end
-- Brings the bodies, then writes what was decided.
if n > 1 and tonumber(meta[2]) * n > max then
  local bytes = 0
  for i = 1, n do
    bytes = bytes + length_of(ids[i])
    if bytes > max and i > 1 then
      for k = i, n do
        if ran_out[k] then expired = expired - 1 end
        ids[k], attempts[k], z[2 * k - 1], z[2 * k] = nil, nil, nil, nil
      end
      n = i - 1
      break
    end
  end
end
local bodies = n > 0 and bodies_of(ids, n) or {}
for i = n, 1, -1 do
  if not bodies[i] then
    dead[#dead + 1] = { ids[i], attempts[i] - 1, 'its body is missing in the store', true }
    table.remove(bodies, i)
    table.remove(ids, i)
    table.remove(attempts, i)
    table.remove(z, 2 * i)
    table.remove(z, 2 * i - 1)
    n = n - 1
  end
end
if n == 0 then alone = 0 elseif U then claimed(ids, n, was, once) end
flight = flight - expired
if waits[1] then move(waits, #waits) end
for i = 1, #dead do bury(dead[i][1], dead[i][2], dead[i][3], dead[i][4], now) end
if n == 0 then
  call('HSET', M, 'in_flight', int(flight))
elseif once then
  for i = 1, remembers and n or 0 do ended(DELIVERED, ids[i], bodies[i], attempts[i], i == n) end
  call('ZREM', Z, unpack(ids, 1, n))
  call('HDEL', B, unpack(ids, 1, n))
  call('HSET', M, 'in_flight', int(flight), remember(request, 0))
else
  flight = flight + n
  move(z, 2 * n)
  call('HSET', M, 'd' .. class, int(deadline), 'in_flight', int(flight), remember(request, base + alone))
end
return reply(#dead, expired + found, alone, base, mixed and attempts or attempts[1] or 1, ids, bodies)
