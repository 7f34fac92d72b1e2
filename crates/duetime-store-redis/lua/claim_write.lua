-- The second half of claim: brings the bodies, then writes what the first half decided.
--
-- KEYS, ARGV, Returns, Cost: see claim.
if n > 1 and tonumber(meta[2]) * n > tonumber(ARGV[8]) then
  local bytes, max = 0, tonumber(ARGV[8])
  for i = 1, n do
    bytes = bytes + call('HSTRLEN', B, ids[i])
    if bytes > max and i > 1 then
      for k = i, n do ids[k], attempts[k], z[2 * k - 1], z[2 * k] = nil, nil, nil, nil end
      n = i - 1
      break
    end
  end
end
local bodies = n > 0 and call('HMGET', B, unpack(ids, 1, n)) or {}
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
if n == 0 then alone = 0 end
flight = flight - expired
if waits[1] then call('ZADD', Z, unpack(waits)) end
for i = 1, #dead do bury(dead[i][1], dead[i][2], dead[i][3], dead[i][4], now) end
if n == 0 then
  call('HSET', M, 'in_flight', int(flight))
elseif once then
  call('ZREM', Z, unpack(ids, 1, n))
  call('HDEL', B, unpack(ids, 1, n))
  call('HSET', M, 'in_flight', int(flight), remember(request, 0))
else
  call('ZADD', Z, unpack(z, 1, 2 * n))
  call('HSET', M, 'd' .. class, int(deadline), 'in_flight', int(flight + n),
    remember(request, base + alone))
end
return reply(#dead, expired, alone, base, mixed and attempts or attempts[1] or 1, ids, bodies)
