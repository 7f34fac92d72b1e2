-- Renames the batch in the outbox, with a number that is not lower, or empties the outbox: if its batch is still the
-- one seen.
--
-- KEYS  the shard's seven, see make
-- ARGV  2 nonce seen  3 new number, "": empty it  4 new nonce
-- Returns  1 done, 0 another batch or none is there
-- Cost  O(1), to empty O(n)
local O = KEYS[6]
local name = call('HGET', O, '')
local number, nonce, to = string.match(name, '^(%d+) (%S+) (%d+)')
if ARGV[3] == '' then
  if nonce ~= ARGV[2] then
    call('HSET', O, '', name)
    return 0
  end
  call('UNLINK', O)
  call('HSET', O, '', number .. ' - 0')
  return 1
end
local done = nonce == ARGV[4] and number == ARGV[3]
if nonce == ARGV[2] and tonumber(ARGV[3]) >= tonumber(number) then
  done = true
  name = ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. to
end
call('HSET', O, '', name)
return done and 1 or 0
