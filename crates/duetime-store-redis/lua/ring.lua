-- Part of claim: the memory of the shard's last 17 to 20 claims, in a ring.
--
-- Five fields of four entries, an entry is 8 bytes of request and 8 of `deadline * 1000 +
-- class * 100 + flag`: no field of meta is longer than 64 bytes, so meta stays a listpack.
-- KEYS  the shard's five, see prelude
-- ARGV  none of its own
-- Returns  recall(request): the remembered number, or nil; remember(request, number): fields to set
-- Cost  no call: meta[5] to meta[10] have been read with the prelude
local requests, find = tonumber(meta[5] or 0), string.find
local function recall(request)
  for k = 6, 10 do
    local at = meta[k] and find(meta[k], request, 1, true)
    if at and at % 16 == 1 then
      return (struct.unpack('>I8', meta[k], at + 8))
    end
  end
end
local function remember(request, number)
  local k = math.floor(requests / 4) % 5
  local before = requests % 4 > 0 and meta[k + 6] or ''
  requests = requests + 1
  meta[k + 6] = before .. request .. struct.pack('>I8', number)
  return 'rqn', int(requests), 'rq' .. k, meta[k + 6]
end
