-- Raises a shard to a routing record, creating it if it may be new; repeated, it changes nothing.
--
-- KEYS  the shard's seven, see make
-- ARGV  1 epoch  2 rid  3 shards  4 previous shards  5 state  6 seed of the hash of ids, or ""
--       7 last life of the name that is known to be deleted
--       8 0: the shard must be there, 1: it is made if nothing is there, 2: and whatever another life left goes
--       9 to 16 floor: last deadline of classes 1 to 8, 0 for none  17 parity of its deadlines, see deadline
--       18 see not_after
-- Errors  STALE epoch rid shards previous state seed | RIVAL epoch rid | UNKNOWN_SHARD | SEALED epoch |
--         LOST: it must be there and is not | OCCUPIED messages life: it holds messages of another life
-- Returns  {epoch, rid, shards, previous, state, seed as they were, or six nils, then eight last deadlines}
-- Cost  O(1)
local M = KEYS[5]
local was = call('HMGET', M, 'epoch', 'rid', 'shards', 'previous', 'state', 'seed',
  'gone', 'd1', 'd2', 'd3', 'd4', 'd5', 'd6', 'd7', 'd8')
local epoch, life = tonumber(ARGV[1]), life_of(ARGV[1])
-- Closed for a deletion: only a later record opens it; see seal.
local sealed = tonumber(call('HGET', M, 'sealed') or '-1')
if was[1] and life_of(was[1]) == life and sealed >= epoch then
  return redis.error_reply('SEALED ' .. format('%.0f', sealed))
end
if not was[1] or life_of(was[1]) < life then
  if was[7] and tonumber(was[7]) >= life then
    return redis.error_reply('UNKNOWN_SHARD its topic was deleted')
  end
  if ARGV[8] == '0' then return redis.error_reply('LOST it should be there') end
  local left = was[1] and life_of(was[1])
  if held() > 0 and ARGV[8] ~= '2' and not (left and left <= tonumber(ARGV[7])) then
    return redis.error_reply('OCCUPIED ' .. format('%.0f', held()) .. ' ' .. (left and format('%.0f', left) or '-'))
  end
  was = {}
  make(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
  call('HSET', M, 'parity', ARGV[17])
elseif tonumber(was[1]) > epoch then
  return redis.error_reply('STALE ' .. table.concat(was, ' ', 1, 5) .. ' ' .. (was[6] or ''))
elseif tonumber(was[1]) == epoch then
  if was[2] ~= ARGV[2] then return redis.error_reply('RIVAL ' .. was[1] .. ' ' .. was[2]) end
  if ARGV[5] == 'stable' and was[5] ~= 'stable' then call('HSET', M, 'state', 'stable', 'parity', '') end
else
  if sealed >= 0 then call('HDEL', M, 'sealed') end
  call('HSET', M, 'epoch', ARGV[1], 'rid', ARGV[2], 'shards', ARGV[3], 'previous', ARGV[4], 'state', ARGV[5],
    'parity', ARGV[17])
  call('HDEL', M, 'places')
end
local out = { was[1] or false, was[2] or false, was[3] or false, was[4] or false, was[5] or false, was[6] or false }
for class = 1, 8 do
  local last = was[7 + class] or '0'
  if tonumber(ARGV[8 + class]) > tonumber(last) then
    last = ARGV[8 + class]
    call('HSET', M, 'd' .. class, last)
  end
  out[6 + class] = last
end
-- Shards of a version that knew no resize have neither; a write also gives WAIT something to wait for.
call('HSETNX', KEYS[6], '', '0 - 0')
call('HSET', KEYS[7], '', '')
return out
