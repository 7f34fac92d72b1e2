-- Part of the scripts that look into a body: what is in an envelope.
--
-- counts(body): number of the producer's headers, where the first of them begins, how often it was redriven; nil
-- where it cannot be read. open(body): due time in ms, list of header names and values in turn, payload; or,
-- fourth, why it cannot be read. with(headers, payload): the fields of a stream's entry.
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns  nothing
-- Cost  no call, O(headers)
local function varint(body, at)
  local value, scale = 0, 1
  while true do
    local one = byte(body, at)
    if not one or scale > 2 ^ 28 then return nil end
    value, at = value + one % 128 * scale, at + 1
    if one < 128 then return value, at end
    scale = scale * 128
  end
end
local function counts(body)
  local value_at = HEADERS_AT + 2 + #REDRIVES
  if byte(body, HEADERS_AT + 1) == 0 and byte(body, HEADERS_AT) > 128
    and sub(body, HEADERS_AT + 2, value_at - 1) == REDRIVES then
    local behind = value_at + 1 + (byte(body, value_at) or 0)
    local redrives = string.match(sub(body, value_at + 1, behind - 1), '^%d+$')
    if redrives then
      return byte(body, HEADERS_AT) - 129, behind, math.min(tonumber(redrives), REDRIVES_MAX)
    end
  end
  local count, at = varint(body, HEADERS_AT)
  return count, at, 0
end
local function open(body)
  if not body then return nil, nil, nil, 'its body is missing in the store' end
  if #body < HEADERS_AT or byte(body, 1) ~= VERSION then return nil, nil, nil, 'its body cannot be read' end
  local due = struct.unpack(DUE, body, DUE_AT)
  local count, at = counts(body)
  local headers = {}
  for i = 1, 2 * (count or 0) do
    local length, from = varint(body, at)
    if not length or from + length > #body + 1 then count = nil break end
    headers[i], at = sub(body, from, from + length - 1), from + length
  end
  if not count then return nil, nil, nil, 'its body cannot be read' end
  return due, headers, sub(body, at)
end
local function with(headers, payload)
  local fields = {}
  for i = 1, #headers, 2 do fields[i], fields[i + 1] = 'header.' .. headers[i], headers[i + 1] end
  fields[#fields + 1], fields[#fields + 2] = 'payload', payload
  return fields
end
