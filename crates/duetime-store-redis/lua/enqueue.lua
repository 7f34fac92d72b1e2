-- Schedules messages. No allow-oom: a full server refuses new messages before anything is written.
--
-- KEYS  the shard's five, see prelude
-- ARGV  2 n  3 earliest absolute due time in ms  4 shortest delay in ms (9e15: there is none)
--       5 largest body in bytes  6 per item r(eject) or p(ut in its place)
--       7 per item a(bsolute) or d(elay); empty: all absolute  8 channel of the hints
--       9 hint up to its time  10 how far ahead a hint is worth while, ms
--       then n pairs (score or delay in ms, id), then n pairs (id, body or tail)
-- Errors  SKEW ms, where a delay is in the batch
-- Returns  the present in ms when all are new, else {present, outcomes, due times};
--          outcome 0 scheduled, 1 replaced, 2 duplicate
-- Cost  O(n log N), one write call for the scores and one for the bodies
local n = tonumber(ARGV[2])
local refused = string.find(ARGV[7], 'd', 1, true) and skewed()
if refused then return refused end
local now = later
local zs, z, bs, b = ARGV, 11, ARGV, 11 + 2 * n
if ARGV[7] ~= '' then
  local kinds, score, head = ARGV[7], {}, {}
  zs, bs = {}, {}
  for i = 1, n do
    local at, id, body = ARGV[9 + 2 * i], ARGV[10 + 2 * i], ARGV[10 + 2 * n + 2 * i]
    if byte(kinds, i) == 100 then
      if not score[at] then
        local due = now + at
        score[at], head[at] = int(due * 1000), struct.pack('>BI8', 1, due)
      end
      at, body = score[at], head[at] .. body
    end
    zs[2 * i - 1], zs[2 * i], bs[2 * i - 1], bs[2 * i] = at, id, id, body
  end
  z, b = 1, 1
end
local soon = math.min(tonumber(ARGV[3]), now + ARGV[4])
local wake = soon <= now + ARGV[10]
if wake then
  local head = call('ZRANGE', Z, 0, 0, 'WITHSCORES')
  wake = tonumber(head[2]) > soon * 1000
end
-- Without dead letters, what the ZSET takes as new is new; ZADD tells how many.
local added = -1
if call('ZCARD', D) == 1 then
  added = call('ZADD', Z, 'NX', unpack(zs, z, z + 2 * n - 1))
end
local answer = now
if added == n then
  call('HSET', B, unpack(bs, b, b + 2 * n - 1))
else
  local ids, outcome, dues, written = {}, {}, {}, {}
  for i = 1, n do ids[i] = zs[z + 2 * i - 1] end
  local there = call('HMGET', B, unpack(ids))
  for i = 1, n do
    local id, body = ids[i], bs[b + 2 * i - 1]
    local was = written[id] or there[i]
    local same = was and sub(was, 10, 17) == sub(body, 10, 17)
    if was and (same or byte(ARGV[6], i) == 114) then
      outcome[i] = same and 0 or 2
      dues[i] = #was > 8 and struct.unpack('>I8', was, 2) or 0
    else
      outcome[i], dues[i] = was and 1 or 0, (struct.unpack('>I8', body, 2))
      local s = call('ZSCORE', Z, id)
      local class = s and math.floor(s % 1000 / 100) or 0
      if class > 0 and class < 9 then flight = flight - 1 end
      if was and not s then
        call('ZREM', D, id)
        call('HDEL', I, id)
      end
      call('ZADD', Z, zs[z + 2 * i - 2], id)
      call('HSET', B, id, body)
      written[id] = body
    end
  end
  if flight ~= tonumber(meta[3]) then call('HSET', M, 'in_flight', int(flight)) end
  answer = { now, outcome, dues }
end
if tonumber(ARGV[5]) > tonumber(meta[2]) then call('HSET', M, 'body_max', ARGV[5]) end
-- A user without the right to publish must not lose the enqueue: it is a hint.
if wake then redis.pcall('PUBLISH', ARGV[8], ARGV[9] .. int(soon)) end
return answer
