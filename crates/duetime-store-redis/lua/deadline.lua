-- Part of the scripts that hand out deadlines; the rule is that of deadlines.rs in duetime-core.
--
-- give(wanted, visibility, home, last, parity, looked): a deadline this shard never gave in that class, and the class.
-- The deadlines of a class only rise; the caller writes `d` .. class. While ids move, those of the shards that they
-- leave and of those that they go to are even or odd, as `parity` in meta says ("": all). A clock that went back may
-- give one before what was looked at for claims that ran out: the next look begins there, see bound.
-- KEYS  the shard's five, see prelude
-- ARGV  none of its own
-- Returns  nothing
-- Cost  one call, none where `last`, d .. home, `parity` and `looked` have been read; one more where the class of the
--       claim's length is far ahead, and one where a look begins earlier
local function give(wanted, visibility, home, last, parity, looked)
  local known = last == nil and call('HMGET', M, 'd' .. home, 'parity', 'looked') or { last, parity, looked }
  if known[3] and wanted * 1000 < tonumber(known[3]) then call('HSET', M, 'looked', int(wanted * 1000)) end
  local near, last, parity = visibility / 8, tonumber(known[1] or 0), tonumber(known[2] or '')
  local function above(taken)
    local at = math.max(wanted, taken + 1)
    return parity and at % 2 ~= parity and at + 1 or at
  end
  if last + 1 - wanted <= near then return above(last), home end
  local all = call('HMGET', M, 'd1', 'd2', 'd3', 'd4', 'd5', 'd6', 'd7', 'd8')
  local class
  local function try(from, to, step, bound)
    for k = from, to, step do
      class = class or tonumber(all[k] or 0) + 1 - wanted <= bound and k or nil
    end
  end
  try(home + 1, 8, 1, near)
  try(home, 8, 1, visibility)
  try(home - 1, 1, -1, visibility)
  if not class then
    class = home
    for k = 1, 8 do
      if tonumber(all[k] or 0) < tonumber(all[class] or 0) then class = k end
    end
  end
  return above(tonumber(all[class] or 0)), class
end
