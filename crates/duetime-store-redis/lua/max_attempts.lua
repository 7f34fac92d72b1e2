-- Part of the script that claims: how many deliveries a message may have, where it says so itself and not its topic.
-- It is asked for where something is to be decided: of a message that was never tried nothing is.
--
-- own_most(got, at, held): the number that the message at this place of ids and scores says, as
-- max_attempts.rs of duetime-core reads it; nil: none, or its body cannot be read. Of one that is not held, those
-- that were tried and come before the next held one are read with it. bytes_read: of the bodies that were asked
-- for. bodies_of(ids, n): the bodies of the first n, false where there is none; those that were read already are
-- not read again. length_of(id): of its body.
-- KEYS  none of its own
-- ARGV  8 bytes of bodies that are read ahead at most
-- Returns  nothing
-- Cost  one call for all that are not held, one for each that is, O(bytes of their bodies), O(headers) for each that is
--       asked for; one call for the other bodies
local bytes_read, bodies_read = 0, {}
local function own_most(got, at, held)
  local id = got[at]
  if bodies_read[id] == nil then
    local unread, most = { id }, held and 1 or math.floor(tonumber(ARGV[8]) / tonumber(meta[2]))
    for k = at + 2, #got, 2 do
      local score = got[k + 1]
      if #unread >= most or byte(score, -3) ~= 48 then break end
      if sub(score, -2) ~= '00' then unread[#unread + 1] = got[k] end
    end
    local bodies = call('HMGET', B, unpack(unread))
    for k = 1, #unread do bodies_read[unread[k]] = bodies[k] end
  end
  local body = bodies_read[id]
  if not body then return nil end
  bytes_read = bytes_read + #body
  if byte(body, 1) ~= VERSION or not string.find(body, MAX_ATTEMPTS, HEADERS_AT, true) then return nil end
  local count, at = counts(body)
  for _ = 1, math.min(count or 0, 127) do
    local length, name_at = varint(body, at)
    if not length then return nil end
    local long, value_at = varint(body, name_at + length)
    if not long then return nil end
    if sub(body, name_at, name_at + length - 1) == MAX_ATTEMPTS then
      local most = tonumber(string.match(sub(body, value_at, value_at + long - 1), '^%d%d?$'))
      return most and most > 0 and most or nil
    end
    at = value_at + long
  end
end
local function bodies_of(ids, n)
  if not next(bodies_read) then return call('HMGET', B, unpack(ids, 1, n)) end
  local bodies, rest, rest_at = {}, {}, {}
  for i = 1, n do
    bodies[i] = bodies_read[ids[i]]
    if bodies[i] == nil then rest[#rest + 1], rest_at[#rest_at + 1] = ids[i], i end
  end
  local found = rest[1] and call('HMGET', B, unpack(rest)) or rest
  for k, i in ipairs(rest_at) do bodies[i] = found[k] end
  return bodies
end
local function length_of(id)
  return bodies_read[id] and #bodies_read[id] or call('HSTRLEN', B, id)
end
