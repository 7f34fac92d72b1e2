-- Reads messages as one moment sees them, and what is remembered of those that are gone. Writes nothing.
--
-- KEYS  the shard's five, see prelude; four more: see past
-- ARGV  2 and on: ids
-- Returns  {scores, bodies, scores as dead letters, attempts and reasons, outcomes or ""}
-- Cost  O(n), four calls; what it remembers is read where an id is not found
local scores, dead, out = call('ZMSCORE', Z, unpack(A, 2)), call('ZMSCORE', D, unpack(A, 2)), {}
local gone, gone_at = {}, {}
for i = 1, #A - 1 do
  out[i] = ''
  if not scores[i] and not dead[i] then gone[#gone + 1], gone_at[#gone + 1] = A[i + 1], i end
end
local past = remembers and remembered(gone) or {}
for k, i in ipairs(gone_at) do out[i] = past[k] or '' end
return { scores, call('HMGET', B, unpack(A, 2)), dead, call('HMGET', I, unpack(A, 2)), out }
