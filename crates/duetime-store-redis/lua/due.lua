-- Part of the script that claims: what is due, and what is first.
--
-- due(last, limit): ids and scores in turn, up to this score. move(z, count): gives messages other scores; scores and
-- ids in turn. first(): the score of the first message that is there by then. Of one message alone, what comes behind
-- it is read with it, and is the first when that one is moved or removed: no second range is read.
-- KEYS  the shard's five, see prelude
-- ARGV  none of its own
-- Returns  nothing
-- Cost  one call each, first none where the limit is 1; O(log N + limit)
local behind
local function due(last, limit)
  if limit ~= '1' then return call('ZRANGEBYSCORE', Z, '-inf', int(last), 'WITHSCORES', 'LIMIT', '0', limit) end
  local both = call('ZRANGE', Z, 0, 1, 'WITHSCORES')
  if tonumber(both[2]) > last then
    behind = both[2]
    return {}
  end
  behind = both[4]
  return { both[1], both[2] }
end
local function move(z, count)
  call('ZADD', Z, unpack(z, 1, count))
  if behind and tonumber(z[1]) < tonumber(behind) then behind = z[1] end
end
local function first()
  return behind or call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2]
end
