-- Moves the oldest messages that are due to the shard's own stream: in one step, so exactly once.
--
-- KEYS  the shard's five, see prelude  6 the stream; four more: see past
-- ARGV  2 caller's present in ms  3 limit  4 request (8 bytes)  5 bytes of bodies at most
--       6 topic  7 about how many entries the stream keeps, or ""  8 "1": what has expired is a dead letter, else it
--       is removed
-- Errors  SKEW ms; WRONGTYPE of the stream's key, before anything is written
-- Returns  {present, next score, due left, buried, claims that ran out, handed over, visible since, expired}: a moment
--          in ms and how many messages, in turn; after a redrive, which keeps due times, as near as the batch shows
-- Cost  O(limit log N), one call for each message and up to 14 for all; without any, nothing is written
local now, _, refused = present()
if refused then return refused end
local request = ARGV[4]
local top = int(now * 1000 + 999)
local function reply(buried, ran_out, n, since, expired)
  local next = call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2]
  local left = tonumber(next) <= now * 1000 + 999 and call('ZCOUNT', Z, '-inf', top) or 0
  return { now, next, left, buried, ran_out, n, since, expired }
end
local kept = call('HMGET', M, 'handed', 'd1', 'd2', 'd3', 'd4', 'd5', 'd6', 'd7', 'd8')
local last = kept[1]
if last and sub(last, 1, 8) == request then return reply(0, 0, tonumber(sub(last, 9)), {}, 0) end
local ids = call('ZRANGEBYSCORE', Z, '-inf', top, 'LIMIT', '0', ARGV[3])
if not ids[1] then return reply(0, 0, 0, ids, 0) end
local n, max = #ids, tonumber(ARGV[5])
if n > 1 and tonumber(meta[2]) * n > max then
  local bytes = call('HSTRLEN', B, ids[1])
  for i = 2, n do
    bytes = bytes + call('HSTRLEN', B, ids[i])
    if bytes > max then n = i - 1 break end
  end
end
-- Redis prints a score slower than it removes a message. Where no claim ever was (d1 to d8), none has a mark.
local claimed = false
for k = 2, 9 do claimed = claimed or (kept[k] or '0') ~= '0' end
local scores = claimed and call('ZMSCORE', Z, unpack(ids, 1, n))
local function seen(i) return math.floor(tonumber(scores and scores[i] or call('ZSCORE', Z, ids[i])) / 1000) end
local first, final = seen(1), seen(n)
local bodies, done, dead, ran_out = call('HMGET', B, unpack(ids, 1, n)), 0, {}, 0
local expired, gone = 0, {}
local S, T, read, since, g, before, text = KEYS[6], ARGV[6], struct.unpack, {}, 0, nil, nil
local start = HEAD .. 'xxxxxxxxB'
-- As in the headers of all sinks: visible ASCII, the rest percent-encoded.
local function encoded(id)
  return (string.gsub(id, '[^!#$&-~]', function(c) return string.format('%%%02X', string.byte(c)) end))
end
-- Takes the value of a header out of headers; nil: it is not there.
local function taken(headers, name)
  for k = 1, #headers, 2 do
    if headers[k] == name then
      table.remove(headers, k)
      return table.remove(headers, k)
    end
  end
end
local HIDDEN = { MAX_ATTEMPTS, PREVIOUS, VISIBILITY, REPEAT }
-- Takes out what is not shown. Returns when the message expires; nil: never. As expiry.rs of duetime-core reads it.
local function expiry(headers, due)
  for k = 1, #HIDDEN do taken(headers, HIDDEN[k]) end
  local text = taken(headers, EXPIRES)
  local after = text and string.match(text, '^%+(%d+)$')
  if after then return due + after end
  return text and tonumber(string.match(text, '^%-?%d+$'))
end
for i = 1, n do
  local id, body, try = ids[i], bodies[i], '1'
  local version, due, count, headers, payload, wrong
  if body and #body >= HEADERS_AT then version, due, count = read(start, body) end
  local plain = version == VERSION and count == 0
  if plain then payload = sub(body, HEADERS_AT + 1) else due, headers, payload, wrong = open(body) end
  if scores then
    try = int(tonumber(sub(scores[i], -2)) + 1)
    if (tonumber(sub(scores[i], -3, -3)) or 0) % 9 > 0 then ran_out = ran_out + 1 end
  end
  local ends = headers and expiry(headers, due)
  if wrong then
    dead[#dead + 1] = { id, try - 1, wrong, not body }
  elseif ends and ends < now then
    expired = expired + 1
    if ARGV[8] == '1' then
      dead[#dead + 1] = { id, try - 1, 'expired: it was not handed over before ' .. int(ends) .. 'ms', false }
    else
      gone[#gone + 1] = id
      if remembers then ended(EXPIRED, id, body, try) end
    end
  else
    if due ~= before or scores then
      before, text = due, int(due)
      since[g + 1], since[g + 2], g = scores and seen(i) or math.min(math.max(due, first), final), 0, g + 2
    end
    since[g] = since[g] + 1
    if plain then
      call('XADD', S, '*', 'topic', T, 'id', encoded(id), 'attempt', try, 'due-at', text, 'payload', payload)
    else
      local rest = with(headers, payload)
      call('XADD', S, '*', 'topic', T, 'id', encoded(id), 'attempt', try, 'due-at', text, unpack(rest))
    end
    done = done + 1
    ids[done] = id
    if remembers then ended(DELIVERED, id, body, try) end
  end
end
flight = flight - ran_out
for i = 1, #dead do bury(dead[i][1], dead[i][2], dead[i][3], dead[i][4], now) end
if gone[1] then
  call('ZREM', Z, unpack(gone))
  if U then call('ZREM', U, unpack(gone)) end
  call('HDEL', B, unpack(gone))
end
if done > 0 then
  -- The dead and the expired are out of it already: the oldest are those that were handed over.
  call('ZREMRANGEBYRANK', Z, 0, done - 1)
  if U then call('ZREM', U, unpack(ids, 1, done)) end
  call('HDEL', B, unpack(ids, 1, done))
  if ARGV[7] ~= '' then call('XTRIM', S, 'MAXLEN', '~', ARGV[7]) end
end
if remembers then write_past() end
call('HSET', M, 'in_flight', int(flight), 'handed', request .. done)
return reply(#dead, ran_out, done, since, expired)
