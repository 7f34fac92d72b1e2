-- Part of the script that claims: how many deliveries a message may have, where it says so itself and not its topic.
-- It is asked for where something is to be decided: of a message that was never tried nothing is.
--
-- own_most(id): the number that the message says, as max_attempts.rs of duetime-core reads it; nil: none, or its body
-- cannot be read. looked: bytes of the bodies that were read for it. bodies_of(ids, n): the bodies of the first n,
-- false where there is none; those that were read already are not read again.
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns  nothing
-- Cost  one call for each that is asked for, O(headers) and O(bytes of its body); one call for the other bodies
local looked, read = 0, {}
local function own_most(id)
  local body = call('HGET', B, id)
  read[id] = body
  if not body then return nil end
  looked = looked + #body
  if byte(body, 1) ~= VERSION or not string.find(body, MAX_ATTEMPTS, HEADERS_AT, true) then return nil end
  local count, at = counts(body)
  for _ = 1, math.min(count or 0, 127) do
    local length, name_at = varint(body, at)
    if not length then return nil end
    local long, value_at = varint(body, name_at + length)
    if not long then return nil end
    if sub(body, at, name_at + length - 1) == MAX_ATTEMPTS then
      local most = tonumber(string.match(sub(body, value_at, value_at + long - 1), '^%d%d?$'))
      return most and most > 0 and most or nil
    end
    at = value_at + long
  end
end
local function bodies_of(ids, n)
  if looked == 0 then return call('HMGET', B, unpack(ids, 1, n)) end
  local bodies, rest, rest_at = {}, {}, {}
  for i = 1, n do
    bodies[i] = read[ids[i]]
    if bodies[i] == nil then rest[#rest + 1], rest_at[#rest_at + 1] = ids[i], i end
  end
  local found = rest[1] and call('HMGET', B, unpack(rest)) or rest
  for k, i in ipairs(rest_at) do bodies[i] = found[k] end
  return bodies
end
