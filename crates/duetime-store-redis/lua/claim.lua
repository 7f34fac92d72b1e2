-- Takes the oldest messages that are due: hidden until a deadline of this claim's own, or, at most
-- once, removed. A message whose last claim ended without a verdict is taken alone.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 caller's present in ms  3 limit  4 visibility in ms  5 class  6 attempts at most
--       7 request (8 bytes)  8 bytes of bodies at most  9 to 11 retry: first wait in ms, factor,
--       longest wait in ms  12 "1": at most once
-- Errors  SKEW ms
-- Returns  {present, next score, due left, buried, expired, alone, base, attempts, ids, bodies};
--          alone: 1 a suspect, plus 2 when this is the answer of an earlier request again; the new
--          score is base + attempts; attempts is one number when all have the same
-- Cost  O(limit log N), eight calls for a run of fresh messages; without any, nothing is written
local refused = skewed()
if refused then return refused end
local now = earlier
local most, request, once = tonumber(ARGV[6]), ARGV[7], ARGV[12] == '1'
local top = int(now * 1000 + 999)
local function reply(buried, expired, alone, base, attempts, ids, bodies)
  local next = call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2]
  local left = tonumber(next) <= now * 1000 + 999 and call('ZCOUNT', Z, '-inf', top) or 0
  return { now, next, left, buried, expired, alone, base, attempts, ids, bodies }
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
  return reply(0, 0, alone + 2, base, attempts, ids, ids[1] and call('HMGET', B, unpack(ids)) or {})
end
local got = call('ZRANGEBYSCORE', Z, '-inf', top, 'WITHSCORES', 'LIMIT', '0', ARGV[3])
if not got[1] then return reply(0, 0, 0, 0, 1, got, got) end
local deadline, class = give(now + ARGV[4], tonumber(ARGV[4]), tonumber(ARGV[5]))
local base = deadline * 1000 + class * 100
local n, ids, attempts, z, score, mixed = 0, {}, {}, {}, {}, false
local alone, expired, waits, dead = 0, 0, {}, {}
for i = 1, #got, 2 do
  local id, s = got[i], got[i + 1]
  if #s < 3 then s = '00' .. s end
  local c1, c2, c3 = byte(s, -3, -1)
  local held, tries = c1 - 48, (c2 - 48) * 10 + c3 - 48
  if held > 0 and n > 0 then break end
  local take = tries < most
  if held > 0 and held < 9 then expired = expired + 1 end
  if not take then
    local why = held > 0 and '; the last claim ended without a verdict' or ''
    dead[#dead + 1] = { id, tries, 'used up its ' .. tries .. ' attempts' .. why }
  elseif held > 0 and held < 9 then
    local wait = math.min(ARGV[9] * ARGV[10] ^ (math.max(tries, 1) - 1), tonumber(ARGV[11]))
    local back = math.floor(tonumber(s) / 1000) + math.floor(wait)
    take = back <= now
    if not take then waits[#waits + 1], waits[#waits + 2] = int(back * 1000 + 900 + tries), id end
  end
  if take then
    n = n + 1
    tries = tries + 1
    if not score[tries] then score[tries] = int(base + tries) end
    ids[n], attempts[n], z[2 * n - 1], z[2 * n] = id, tries, score[tries], id
    if tries ~= attempts[1] then mixed = true end
    if held > 0 then alone = 1 break end
  end
end
