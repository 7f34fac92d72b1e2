-- Part of the script that claims: keeps when what is claimed was due, where the topic has a watermark.
--
-- claimed(ids, n, was, once): the first n of the ids, at least one, and the score each had; once: they are removed.
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns  nothing
-- Cost  one call, O(n log N)
-- What has no entry has its due time as its score; what has one keeps it through every further attempt.
local function claimed(ids, n, was, once)
  if once then
    call('ZREM', U, unpack(ids, 1, n))
    return
  end
  local u = {}
  for i = 1, n do u[2 * i - 1], u[2 * i] = int(math.floor(was[ids[i]] / 1000)), ids[i] end
  call('ZADD', U, 'NX', unpack(u))
end
