-- Part of the scripts that redrive: counts it in the body.
--
-- redriven(body): the body with one redrive more; nil where it stays as it is, because it cannot be read or its
-- count is the highest there is.
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns  nothing
-- Cost  no call, O(length of the body)
local function redriven(body)
  if #body < HEADERS_AT or byte(body, 1) ~= VERSION then return nil end
  local count, at, redrives = counts(body)
  if not count or count > 126 or redrives >= REDRIVES_MAX then return nil end
  local value = int(redrives + 1)
  local header = REDRIVES .. string.char(#value) .. value
  return sub(body, 1, NONCE_END) .. string.char(129 + count, 0) .. header .. sub(body, at)
end
