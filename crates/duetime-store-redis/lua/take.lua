-- Freezes messages for a move: from their places into the outbox, under the next number. An outbox
-- that is not empty is answered instead, and nothing is taken.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 destination  3 nonce (16 hex digits)  4 bytes of bodies at most  5 and on: ids
-- Returns  the outbox: '', its name, then id and message in turn; see outbox
-- Cost  O(n log N), seven calls
-- A message in the outbox: l(ive) or d(ead), in capitals if its body is missing, its score, length of
-- what is known of its death, that, the body.
local O = KEYS[6]
local name = call('HGET', O, '')
local number, nonce = string.match(name, '^(%d+) (%S+)')
if nonce ~= '-' then return call('HGETALL', O) end -- at most 256 messages and the name
local scores, bodies = call('ZMSCORE', Z, unpack(ARGV, 5)), call('HMGET', B, unpack(ARGV, 5))
local graves, infos
local out, live, dead, all, seen, bytes = { '', '' }, {}, {}, {}, {}, 0
for i = 5, #ARGV do
  local id, s, body = ARGV[i], scores[i - 4], bodies[i - 4]
  local kind, info = 'l', ''
  if not s then
    if not graves then
      graves, infos = call('ZMSCORE', D, unpack(ARGV, 5)), call('HMGET', I, unpack(ARGV, 5))
    end
    s, kind, info = graves[i - 4], 'd', infos[i - 4] or '0 '
  end
  if s and not seen[id] and id ~= '' then
    bytes = bytes + (body and #body or 0)
    if bytes > tonumber(ARGV[4]) and all[1] then break end
    seen[id] = true
    all[#all + 1] = id
    if kind == 'l' then
      live[#live + 1] = id
      local class = byte(s, -3) or 48
      if #s > 2 and class > 48 and class < 57 then flight = flight - 1 end
    else
      dead[#dead + 1] = id
    end
    if not body then kind, body = string.upper(kind), '' end
    out[#out + 1] = id
    out[#out + 1] = kind .. s .. ' ' .. #info .. ' ' .. info .. body
  end
end
if not all[1] then
  call('HSET', O, '', name)
  return { '', name }
end
out[2] = int(number + 1) .. ' ' .. ARGV[3] .. ' ' .. ARGV[2]
if live[1] then call('ZREM', Z, unpack(live)) end
if dead[1] then
  call('ZREM', D, unpack(dead))
  call('HDEL', I, unpack(dead))
end
call('HDEL', B, unpack(all))
call('HSET', O, unpack(out))
if flight ~= tonumber(meta[3]) then call('HSET', M, 'in_flight', int(flight)) end
return out
