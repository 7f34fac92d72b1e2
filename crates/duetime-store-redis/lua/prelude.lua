-- Opens every shard script: names the keys, checks the end of the call, the shard and the caller's epoch.
--
-- KEYS  1 messages (ZSET)  2 bodies (HASH)  3 dead letters (ZSET)  4 reasons (HASH)  5 meta (HASH)
-- ARGV  1 epoch of the caller's routing record, the time of the server in ms after which the call must not
--       be carried out any more, and the caller's present in ms (see present), of 13 digits each; each script
--       says what follows, and calls the arguments A
-- Returns  nothing; a refusal ends the script: LATE ms | UNKNOWN_SHARD | NOT_READY epoch |
--          STALE epoch rid shards previous state seed
-- Cost  two calls, O(1)
local Z, B, D, I, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local call, format, byte, sub = redis.call, string.format, string.byte, string.sub
local head = ARGV[1]
local epoch, till = sub(head, 1, -29), sub(head, -27, -15)
-- `..` and tostring print 14 digits and would destroy a score.
local function int(x) return format('%.0f', x) end
local clock = call('TIME')
local us = clock[2] + 0
local own = clock[1] * 1000 + (us - us % 1000) / 1000
if own - till > 0 then return redis.error_reply('LATE ' .. int(own - till)) end
local meta = call('HMGET', M, 'epoch', 'body_max', 'in_flight')
if meta[1] ~= epoch then
  if not meta[1] then
    return redis.error_reply('UNKNOWN_SHARD it was never created, or its topic was deleted')
  end
  if tonumber(epoch) > tonumber(meta[1]) then
    return redis.error_reply('NOT_READY ' .. meta[1])
  end
  local r = call('HMGET', M, 'rid', 'shards', 'previous', 'state', 'seed')
  return redis.error_reply('STALE ' .. meta[1] .. ' ' .. r[1] .. ' ' .. r[2] .. ' ' .. r[3] .. ' ' .. r[4] .. ' ' .. (r[5] or ''))
end
local flight = meta[3] + 0
