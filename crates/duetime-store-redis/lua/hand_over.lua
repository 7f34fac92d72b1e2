-- Moves the oldest messages that are due to the shard's own stream: in one step, so exactly once.
--
-- KEYS  the shard's five, see prelude  6 the stream
-- ARGV  2 caller's present in ms  3 limit  4 request (8 bytes)  5 "1": repeated, the first answer was
--       lost  6 bytes of bodies at most  7 topic  8 about how many entries the stream keeps, or ""
-- Errors  SKEW ms; WRONGTYPE of the stream's key, before anything is written
-- Returns  {present, next score, due left, buried, expired, handed over, their scores before}
-- Cost  O(limit log N), one call for each message and up to ten for all; without any, just the clock is kept
local caller, request = tonumber(ARGV[2]), ARGV[4]
if math.abs(own - caller) > 2000 then return redis.error_reply('SKEW ' .. int(own - caller)) end
local now = math.max(high, math.min(own, caller))
local top = int(now * 1000 + 999)
local function reply(buried, expired, n, scores)
  local next = call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2]
  local left = tonumber(next) <= now * 1000 + 999 and call('ZCOUNT', Z, '-inf', top) or 0
  return { now, next, left, buried, expired, n, scores }
end
local last = ARGV[5] == '1' and call('HGET', M, 'handed')
if last and sub(last, 1, 8) == request then return reply(0, 0, tonumber(sub(last, 9)), {}) end
local got = call('ZRANGEBYSCORE', Z, '-inf', top, 'WITHSCORES', 'LIMIT', '0', ARGV[3])
if not got[1] then
  if now > high then call('HSET', M, 'hw', int(now)) end
  return reply(0, 0, 0, got)
end
local n, ids, max = #got / 2, {}, tonumber(ARGV[6])
for i = 1, n do ids[i] = got[2 * i - 1] end
if n > 1 and tonumber(meta[4]) * n > max then
  local bytes = call('HSTRLEN', B, ids[1])
  for i = 2, n do
    bytes = bytes + call('HSTRLEN', B, ids[i])
    if bytes > max then n = i - 1 break end
  end
end
local bodies, done, scores, dead, expired = call('HMGET', B, unpack(ids, 1, n)), 0, {}, {}, 0
-- Many messages share the end of their score and their due time: each is read once.
local S, T, ends, dues = KEYS[6], ARGV[7], {}, {}
for i = 1, n do
  local id, s, body = ids[i], got[2 * i], bodies[i]
  local tail = sub(s, -3)
  local try = ends[tail]
  if not try then
    local tries = tonumber(sub(tail, -2))
    try = { int(tries + 1), (tonumber(sub(tail, 1, 1)) or 0) % 9 > 0, tries }
    ends[tail] = try
  end
  if try[2] then expired = expired + 1 end
  local plain = body and byte(body, 18) == 0 and byte(body, 1) == 1 and dues[sub(body, 2, 9)]
  if plain then
    -- No headers, and a due time seen before: the same entry as below, for less.
    call('XADD', S, '*', 'topic', T, 'id', id, 'attempt', try[1], 'due-at', plain, 'payload', sub(body, 19))
    done = done + 1
    ids[done], scores[done] = id, s
  else
    local due, headers, payload, wrong = open(body)
    if wrong then
      dead[#dead + 1] = { id, try[3], wrong, not body }
    else
      due = int(due)
      dues[sub(body, 2, 9)] = due
      call('XADD', S, '*', 'topic', T, 'id', id, 'attempt', try[1], 'due-at', due, unpack(with(headers, payload)))
      done = done + 1
      ids[done], scores[done] = id, s
    end
  end
end
flight = flight - expired
for i = 1, #dead do bury(dead[i][1], dead[i][2], dead[i][3], dead[i][4], now) end
if done > 0 then
  -- The dead are out of it already: the oldest are those that were handed over.
  call('ZREMRANGEBYRANK', Z, 0, done - 1)
  call('HDEL', B, unpack(ids, 1, done))
  if ARGV[8] ~= '' then call('XTRIM', S, 'MAXLEN', '~', ARGV[8]) end
end
call('HSET', M, 'hw', int(now), 'in_flight', int(flight), 'handed', request .. done)
return reply(#dead, expired, done, scores)
