-- Part of the scripts that bring dead letters: where one that died at a moment finds its place.
--
-- free_place(at): the first free score from `at` on. The time of death is a page's cursor too: unique in its shard. So
-- a run of places is full that has as many members, and the end of a run is looked for by doubling and halving.
-- KEYS  3 of the shard's five, see prelude
-- ARGV  none of its own
-- Returns  nothing
-- Cost  a call; twice the logarithm of the length of the run more where the place is taken
local function full(from, to) return call('ZCOUNT', D, int(from), int(to)) > to - from end
local function free_place(at)
  if not full(at, at) then return at end
  local taken, apart = 0, 1
  while full(at, at + apart) do taken, apart = apart, 2 * apart end
  while apart - taken > 1 do
    local half = math.floor((taken + apart) / 2)
    if full(at, at + half) then taken = half else apart = half end
  end
  return at + apart
end
