-- Part of claim: the memory of the shard's last 17 to 20 claims, in a ring.
--
-- Five fields of four entries, an entry is 8 bytes of request and 8 of `deadline * 1000 +
-- class * 100 + flag`: no field of meta is longer than 64 bytes, so meta stays a listpack.
-- KEYS  the shard's five, see prelude
-- ARGV  none of its own
-- Returns  recall(request): the remembered number, or nil; remember(request, number): fields to set
-- Cost  one call, O(1)
local ring = call('HMGET', M, 'rqn', 'rq0', 'rq1', 'rq2', 'rq3', 'rq4')
local requests, find = tonumber(ring[1] or 0), string.find
local function recall(request)
  for k = 2, 6 do
    local at = ring[k] and find(ring[k], request, 1, true)
    if at and at % 16 == 1 then
      return (struct.unpack('>I8', ring[k], at + 8))
    end
  end
end
local function remember(request, number)
  local k = math.floor(requests / 4) % 5
  local before = requests % 4 > 0 and ring[k + 2] or ''
  requests = requests + 1
  ring[k + 2] = before .. request .. struct.pack('>I8', number)
  return 'rqn', int(requests), 'rq' .. k, ring[k + 2]
end
