-- Inserts a batch at its destination, once, or puts it back at its source, out of the outbox; ids that live there stay
-- as they are.
--
-- On a full server too: what is on its way can be neither claimed nor cancelled, and its source frees as much as
-- this takes as soon as it drops the batch.
-- KEYS  the shard's seven, see make
-- ARGV  2 source, "": this is the source, it is put back  3 number  4 nonce  5 channel of the hints
--       6 hint up to its time  7 how far ahead a hint is worth while, ms  8 n, then n ids, then for each: kind, score,
--       attempts and reason, body (see take)
-- Returns  how many were inserted, or "number nonce" of the batch that stands in the way; put back: "" where another
--          batch or none is in the outbox
-- Cost  O(n log N), seven calls, and three for each dead letter; twice the logarithm of their number more for one
--       whose place is taken
local O, V, n = KEYS[6], KEYS[7], tonumber(ARGV[8])
local back = ARGV[2] == ''
local last = call('HGET', back and O or V, back and '' or ARGV[2])
if back then
  if string.match(last or '', '^%d+ (%S+)') ~= ARGV[4] then
    call('HSET', V, '', '')
    return ''
  end
elseif last then
  call('HSET', V, '', '')
  if last == ARGV[3] .. ' ' .. ARGV[4] then return 0 end
  if tonumber(string.match(last, '^%d+')) >= tonumber(ARGV[3]) then return last end
end
local scores = n > 0 and call('ZMSCORE', Z, unpack(ARGV, 9, 8 + n)) or {}
local graves = n > 0 and call('ZCARD', D) > 1 and call('ZMSCORE', D, unpack(ARGV, 9, 8 + n)) or {}
local z, b, dead, top, bases, soon, seen, fresh = {}, {}, {}, {}, {}, math.huge, {}, 0
local largest, u = tonumber(meta[2]), {}
local A, zs, bs = ARGV, 0, 0
for i = 1, n do
  local id, at = A[8 + i], 5 + n + 4 * i
  if not scores[i] and not graves[i] and not seen[id] then
    seen[id], fresh = true, fresh + 1
    local kind, s, body = A[at], A[at + 1], A[at + 3]
    local score = tonumber(s)
    if kind == 'l' or kind == 'L' then
      z[zs + 1], z[zs + 2], zs = s, id, zs + 2
      if score < soon then soon = score end
      -- What was claimed, or put off: its score does not say when it was due.
      local due = U and #body >= DUE_END and struct.unpack(DUE, body, DUE_AT)
      if due and due ~= math.floor(score / 1000) then u[#u + 1], u[#u + 2] = int(due), id end
      local class = byte(s, -3) or 48
      -- Marks of claims have come here, see hand_over.
      if sub(s, -3) ~= '000' then top[1] = top[1] or 1 end
      if class > 48 and class < 57 and #s > 2 then
        flight, class = flight + 1, class - 48
        top[class] = math.max(top[class] or 0, math.floor(score / 1000))
        bases[score - score % 100] = true
      end
    else
      dead[#dead + 1] = { id, score, A[at + 2] }
    end
    if kind == 'l' or kind == 'd' then
      b[bs + 1], b[bs + 2], bs = id, body, bs + 2
      if #body > largest then largest = #body end
    end
  end
end
soon = math.floor(soon / 1000)
local head = tonumber(call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2])
local wake = soon * 1000 < head and soon <= own + ARGV[7]
if z[1] then call('ZADD', Z, unpack(z)) end
if u[1] then call('ZADD', U, unpack(u)) end
if b[1] then call('HSET', B, unpack(b)) end
-- In the order of their deaths, each goes on behind the last.
table.sort(dead, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end)
local behind = 0
for i = 1, #dead do
  local at = free_place(math.max(dead[i][2], behind))
  behind = at + 1
  call('ZADD', D, int(at), dead[i][1])
  call('HSET', I, dead[i][1], dead[i][3])
end
for class, deadline in pairs(top) do
  local now = tonumber(call('HGET', M, 'd' .. class) or 0)
  if deadline > now then call('HSET', M, 'd' .. class, int(deadline)) end
end
-- What is claimed may have run out: the next look for such claims begins there, see bound.
local looked = next(bases) and tonumber(call('HGET', M, 'looked') or '')
for base in pairs(bases) do
  if looked and base < looked then
    looked = base
    call('HSET', M, 'looked', int(base))
  end
end
-- A claim made here may have the same deadline by chance: repeated, it must not answer these.
local ring = next(bases) and call('HMGET', M, 'rq0', 'rq1', 'rq2', 'rq3', 'rq4') or {}
for k = 1, #ring do
  local entries, kept = ring[k] or '', ''
  for at = 1, #entries, 16 do
    local number = struct.unpack('>I8', entries, at + 8)
    kept = kept .. (bases[number - number % 100] and string.rep('\0', 8) or sub(entries, at, at + 7))
      .. sub(entries, at + 8, at + 15)
  end
  if kept ~= entries then call('HSET', M, 'rq' .. (k - 1), kept) end
end
call('HSET', M, 'in_flight', int(flight), 'body_max', int(largest))
if back then
  -- A scan may have passed their places; see source.
  call('HSET', M, 'revived', int((call('HGET', M, 'revived') or 0) + 1))
  call('UNLINK', O)
  call('HSET', O, '', string.match(last, '^%d+') .. ' - 0')
else
  call('HSET', V, ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
end
if wake then redis.pcall('PUBLISH', ARGV[5], ARGV[6] .. int(soon)) end
return fresh
