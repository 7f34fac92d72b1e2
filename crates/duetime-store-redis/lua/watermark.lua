-- Reads what of a shard is not done and was due first. Of a topic with a watermark.
--
-- KEYS  the shard's seven, see make, and the last one, U: id -> when it was due, of each message that was claimed since
--       it was scheduled and is not done. Its score in the shard is then when it is visible next
-- ARGV  2 how many entries are looked at
-- Returns  {present by the earlier clock; first message and its score; of the oldest entry id, due time and score in
--          the shard; of the oldest message on its way to another shard id and due time}, "" where there is none
-- Cost  O(log N), five calls; while messages move O(bytes of a batch) more
-- An entry whose message is gone is left by nobody who knows of entries; it is dropped here.
local now, O = present(), KEYS[6]
local first = call('ZRANGE', Z, 0, 0, 'WITHSCORES')
local entries, gone, old = call('ZRANGE', U, 0, ARGV[2] - 1, 'WITHSCORES'), {}, { '', '', '' }
local ids = {}
for i = 1, #entries, 2 do
  if entries[i] ~= '' then ids[#ids + 1] = entries[i] end
end
local scores = ids[1] and call('ZMSCORE', Z, unpack(ids)) or {}
for i = 1, #ids do
  old = { scores[i] and ids[i] or '', entries[2 * i], scores[i] or '' }
  if scores[i] then break end
  gone[i] = ids[i]
end
-- Where none of them lives, what comes behind them was due no earlier than the last one.
if gone[1] then call('ZREM', U, unpack(gone)) end
if #gone == #ids and #ids < ARGV[2] - 0 then old = { '', '', '' } end
local moving, due = '', ''
local frozen = call('HLEN', O) > 1 and call('HGETALL', O) or {} -- at most 256 messages and the name
for i = 1, #frozen, 2 do
  local score, from = string.match(frozen[i + 1], '^[lL](%S+) 0 ()')
  if score and frozen[i] ~= '' then
    local body, at = sub(frozen[i + 1], from, from + DUE_END - 1), math.floor(score / 1000)
    if #body >= DUE_END then at = math.min(at, (struct.unpack(DUE, body, DUE_AT))) end
    if due == '' or at < tonumber(due) then moving, due = frozen[i], int(at) end
  end
end
-- What was seen counts only when replicated: WAIT waits for a write.
call('HSET', KEYS[7], '', '')
return { int(now), first[1], first[2], old[1], old[2], old[3], moving, due }
