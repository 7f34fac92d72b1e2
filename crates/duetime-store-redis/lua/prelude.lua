-- Opens every shard script: names the keys, checks the end of the call, the shard and the caller's epoch.
--
-- KEYS  1 messages (ZSET)  2 bodies (HASH)  3 dead letters (ZSET)  4 reasons (HASH)  5 meta (HASH)
-- ARGV  1 epoch and rid of the caller's routing record, the time of the server in ms after which the call must
--       not be carried out any more, and the caller's present in ms (see present), of 13 digits each; for how many ms
--       it remembers what ends, and since which version of the topic (see past), of 11 and 10 digits, a "+" between
--       them where the topic has a watermark: the last key, U, is then a ZSET, see watermark; each script says what
--       follows, and calls the arguments A
-- Returns  nothing; a refusal ends the script: LATE ms | UNKNOWN_SHARD | NOT_READY epoch |
--          STALE epoch rid shards previous state seed
-- A store that went back gives an epoch again: the same epoch with another rid is another record.
-- Cost  two calls, O(1); a script may have more fields of meta read with those, instead of MORE
local Z, B, D, I, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local call, format, byte, sub = redis.call, string.format, string.byte, string.sub
local head = ARGV[1]
local U = byte(head, -11) == 43 and KEYS[#KEYS] or nil
local caller, till = sub(head, 1, -52), sub(head, -50, -38)
-- `..` and tostring print 14 digits and would destroy a score.
local function int(x) return format('%.0f', x) end
local clock = call('TIME')
local us = clock[2] + 0
local own = clock[1] * 1000 + (us - us % 1000) / 1000
if own - till > 0 then return redis.error_reply('LATE ' .. int(own - till)) end
local meta = call('HMGET', M, 'epoch', 'body_max', 'in_flight', 'rid' --[[MORE]])
if not meta[1] or meta[1] .. ' ' .. (meta[4] or '') ~= caller then
  if not meta[1] then
    return redis.error_reply('UNKNOWN_SHARD it was never created, or its topic was deleted')
  end
  if tonumber(string.match(caller, '^%d+')) > tonumber(meta[1]) then
    return redis.error_reply('NOT_READY ' .. meta[1])
  end
  local r = call('HMGET', M, 'shards', 'previous', 'state', 'seed')
  r = table.concat(r, ' ', 1, 3) .. ' ' .. (r[4] or '')
  return redis.error_reply('STALE ' .. meta[1] .. ' ' .. (meta[4] or '') .. ' ' .. r)
end
local flight = meta[3] + 0
