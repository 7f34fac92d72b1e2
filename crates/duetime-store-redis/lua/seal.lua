-- Looks whether a shard holds anything, and where it does not, closes it for a deletion: its epoch goes below every
-- epoch of its life, so that whoever comes is NOT_READY, and it notes up to which record it stays so. Only a fence
-- by a later record opens it, and that needs a swap of the topic's record, which the deletion's own swap excludes.
--
-- KEYS  the shard's seven, see make  8 its stream
-- ARGV  1 epoch of the topic's record  2 1: close it, 0: only look  3 see not_after
-- Errors  OVERTAKEN epoch: the shard has a later record
-- Returns  {messages, dead letters and frozen ones; entries of its stream}; where both are 0, it is closed or not there
-- Cost  O(1)
local there, kind, entries = call('HGET', KEYS[5], 'epoch'), call('TYPE', KEYS[8]).ok, 0
if there and tonumber(there) > tonumber(ARGV[1]) then return redis.error_reply('OVERTAKEN ' .. there) end
if kind == 'stream' then entries = call('XLEN', KEYS[8]) elseif kind ~= 'none' then entries = 1 end
local messages = held()
if there and ARGV[2] == '1' and messages == 0 and entries == 0 then
  call('HSET', KEYS[5], 'epoch', format('%.0f', life_of(there) * LIFE), 'sealed', ARGV[1])
end
return { messages, entries }
