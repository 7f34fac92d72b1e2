-- Part of the script that claims: how many messages of the shard may be in flight, where its topic has a bound.
--
-- room(wanted, now): how many of so many may be claimed, and how many claims it found that ran out. A claim that ran
-- out holds no place, and it may stand behind any number of messages that were due before it. So each look goes over
-- what has fallen due since the last one, a page after the other, and gives those the score that a claim gives to
-- those it meets. What it writes is a whole step, whatever follows. No claim has a score before `looked`: see deadline
-- and put. is_full(): none may be claimed, and all that fell due was looked at.
-- KEYS  the shard's five, see prelude
-- ARGV  9 to 11 retry: see backoff  14 most in flight, "": no bound  15 "1": of these, as many as were handed over
-- Returns  nothing
-- Cost  none without a bound; with one that leaves less than is wanted two to nine calls, O(log N + 256); one more
--       where places are handed over
local PAGE, PAGES = 64, 4
local most, looked_at_all = tonumber(ARGV[14]), true
if most and ARGV[15] == '1' then most = math.min(most, tonumber(call('HGET', M, 'places') or '0')) end
local function look(now)
  local top, found = now * 1000 + 999, 0
  local from = tonumber(meta[13] or '')
  looked_at_all = false
  for _ = 1, PAGES do
    local page, z = call('ZRANGEBYSCORE', Z, from and int(from) or '-inf', int(top), 'WITHSCORES', 'LIMIT', 0, PAGE), {}
    local score, class
    for i = 1, #page, 2 do
      score = tonumber(page[i + 1])
      class = math.floor(score / 100) % 10
      if class > 0 and class < 9 then
        local tries = score % 100
        local back = math.floor(score / 1000) + math.floor(backoff(tries))
        z[#z + 1], z[#z + 2] = int(back * 1000 + 900 + tries), page[i]
      end
    end
    found = found + #z / 2
    if z[1] then call('ZADD', Z, unpack(z)) end
    if #page < 2 * PAGE then
      from, looked_at_all = top + 1, true
      break
    end
    -- Of one millisecond, whoever nobody holds comes first, then claims, then suspects; others have the claim's score.
    if class == 0 then from = score - score % 1000 + 100
    elseif class == 9 then from = score - score % 1000 + 1000
    else from = score end
  end
  flight, meta[13] = flight - found, from
  call('HSET', M, 'in_flight', int(flight), 'looked', int(from))
  return found
end
local function room(wanted, now)
  if not most or most - flight >= tonumber(wanted) then return wanted, 0 end
  local found = look(now)
  return int(math.max(math.min(most - flight, tonumber(wanted)), 0)), found
end
local function is_full() return most and flight >= most and looked_at_all end
