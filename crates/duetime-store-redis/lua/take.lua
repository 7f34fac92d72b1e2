-- Freezes messages for a move: from their places into the outbox, under the next number. An outbox
-- that is not empty is answered instead, and nothing is taken.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 destination  3 nonce (16 hex digits)  4 bytes of bodies at most  5 "1": what is claimed and has not run out
--       is left, for there is a bound of what is in flight, see bound  6 and on: ids
-- Returns  the outbox: '', its name, then id and message in turn; see outbox
-- Cost  O(n log N), seven calls
-- A message in the outbox: l(ive) or d(ead), in capitals if its body is missing, its score, length of
-- what is known of its death, that, the body.
local O = KEYS[6]
local name = call('HGET', O, '')
local number, nonce = string.match(name, '^(%d+) (%S+)')
if nonce ~= '-' then return call('HGETALL', O) end -- at most 256 messages and the name
local A, max = ARGV, tonumber(ARGV[4])
local scores, bodies = call('ZMSCORE', Z, unpack(A, 6)), call('HMGET', B, unpack(A, 6))
local graves, infos
local out, live, dead, all, seen, bytes, n = { '', '' }, {}, {}, {}, {}, 0, 0
for i = 6, #A do
  local id, s, body = A[i], scores[i - 5], bodies[i - 5]
  local dies = not s
  if dies then
    if not graves then
      graves, infos = call('ZMSCORE', D, unpack(A, 6)), call('HMGET', I, unpack(A, 6))
    end
    s = graves[i - 5]
  end
  local class = s and #s > 2 and byte(s, -3) or 48
  local held = not dies and class > 48 and class < 57
  local stays = held and A[5] == '1' and tonumber(s) > own * 1000 + 999
  if s and not seen[id] and id ~= '' and not stays then
    if body then bytes = bytes + #body end
    if bytes > max and n > 0 then break end
    n = n + 1
    seen[id], all[n], out[2 * n + 1] = true, id, id
    if dies then
      local info = infos[i - 5] or '0 '
      dead[#dead + 1] = id
      out[2 * n + 2] = (body and 'd' or 'D') .. s .. ' ' .. #info .. ' ' .. info .. (body or '')
    else
      live[#live + 1] = id
      if held then flight = flight - 1 end
      out[2 * n + 2] = body and 'l' .. s .. ' 0 ' .. body or 'L' .. s .. ' 0 '
    end
  end
end
if not all[1] then
  call('HSET', O, '', name)
  return { '', name }
end
out[2] = int(number + 1) .. ' ' .. ARGV[3] .. ' ' .. ARGV[2]
if live[1] then call('ZREM', Z, unpack(live)) end
if live[1] and U then call('ZREM', U, unpack(live)) end
if dead[1] then
  call('ZREM', D, unpack(dead))
  call('HDEL', I, unpack(dead))
end
call('HDEL', B, unpack(all))
call('HSET', O, unpack(out))
if flight ~= tonumber(meta[3]) then call('HSET', M, 'in_flight', int(flight)) end
return out
