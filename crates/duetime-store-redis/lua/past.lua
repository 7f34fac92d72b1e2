-- Part of the scripts that end messages, or look for one that is gone: what the shard remembers of them. Before it
-- stands layout.
--
-- remembers: whether the call has it remember anything; nothing else here is used where not.
-- remembered(ids): by place in the list, the outcome of each id that is remembered within the window.
-- is_ack_of(outcome, score): whether the claim with this score ended so. heads(ids, first, last): their bodies, of long
-- ones the beginning. ended(end, id, body, score, is_last, mark): to be remembered; mark: UNDOABLE and
-- who may put it back, see restore. unmark(id, outcome): not any more. write_past(notes): all that ended, at once;
-- notes: cancels of unknown ids, which are counted. notes_left(): how many more of them there is room for.
-- KEYS  the last four: generations (HASH), id -> outcome; what is newer is in a later one, and they are used in a ring
-- ARGV  none of its own; window in ms and since are in the first, see prelude
-- Returns  nothing
-- Cost  remembered: a call, and one a generation with something of the window. write_past: two, three more to begin one
-- An outcome: end (1 byte), change of the routing (4), when, due time, nonce, score (8 each), as memory.rs of
-- duetime-core has it. meta has the ring: since, the generation that is written to, when each began, how many notes
-- each has, which versions of before leave out. The oldest one is dropped whole, in the background, when all of it is
-- older than the window.
local WINDOW, SINCE, PAST = tonumber(sub(head, -22, -12)), tonumber(sub(head, -10)), #KEYS - (U and 5 or 4)
local remembers = WINDOW > 0
local DELIVERED, CANCELLED, CANCELLED_IN_FLIGHT, DEAD, CANCELLED_BEFORE = 1, 2, 3, 4, 5
local EXPIRED, MOVED, UNDOABLE, OUTCOME_BYTES = 6, 7, '\1', 37
local PAST_DUE_AT, PAST_NONCE_AT, PAST_NONCE_END, NOTES_MAX = 14, 22, 29, 1048576
local RING, RING_BYTES = '>I4BI8I8I8I8I4I4I4I4', 53
-- Made where they are needed alone: a topic that remembers nothing pays for none of them.
local ring, ends, generations, turn, remembered, is_ack_of, heads, ended, write_past, notes_left, unmark
if remembers then
  function generations()
    if not ring then
      local kept = call('HGET', M, 'past')
      ring = kept and { struct.unpack(RING, kept .. string.rep('\0', RING_BYTES - #kept)) } or {}
      -- What another memory left is void.
      if ring[1] ~= SINCE then ring = { SINCE, 0, 0, 0, 0, 0, 0, 0, 0, 0 } end
    end
    return ring
  end
  function remembered(ids)
    local g, found = generations(), {}
    if g[2] == 0 or not ids[1] then return found end
    for back = 0, 3 do
      local k = (g[2] - 1 - back) % 4 + 1
      local over = back == 0 and own or g[3 + k % 4]
      if g[2 + k] > 0 and over > own - WINDOW then
        local there = call('HMGET', KEYS[PAST + k], unpack(ids))
        for i = 1, #ids do found[i] = found[i] or there[i] or nil end
      end
    end
    for i = 1, #ids do
      if found[i] and struct.unpack('>I8', found[i], 6) <= own - WINDOW then found[i] = nil end
    end
    return found
  end
  function is_ack_of(outcome, score)
    return byte(outcome) == DELIVERED and (struct.unpack('>I8', outcome, 30)) == tonumber(score)
  end
  function heads(ids, first, last)
    if meta[2] * (last - first + 1) <= 1048576 then return call('HMGET', B, unpack(ids, first, last)) end
    local out = {}
    for i = first, last do out[#out + 1] = sub(call('HGET', B, ids[i]) or '', 1, NONCE_END) end
    return out
  end
  -- Packed once for all that ended so, and for all of one score.
  local beginnings, last_score, last_packed = {}, nil, nil
  local NO_BODY = string.rep('\0', 16)
  function ended(how, id, body, score, is_last, mark)
    if not beginnings[how] then
      beginnings[how] = struct.pack('>BI4I8', how, string.match(caller, '^%d+') % 1048576, own)
    end
    if score ~= last_score then last_score, last_packed = score, struct.pack('>I8', tonumber(score)) end
    local of = body and #body >= NONCE_END and sub(body, DUE_AT, NONCE_END) or NO_BODY
    ends = ends or {}
    local n = #ends
    ends[n + 1], ends[n + 2] = id, beginnings[how] .. of .. last_packed .. (mark or '')
    if is_last then write_past() end
  end
  -- Begins a generation where it is time to, and answers the ring.
  function turn()
    local g = generations()
    local begins, changed = nil, false
    -- A clock that was ahead and was put right.
    for k = 3, 6 do if g[k] > own then g[k], changed = own, true end end
    if g[2] == 0 then
      for k = 2, 4 do
        call('UNLINK', KEYS[PAST + k])
        call('HSET', KEYS[PAST + k], '', '')
      end
      begins = 1
    else
      local next = g[2] % 4 + 1
      if own - g[2 + g[2]] >= WINDOW / 3 and g[3 + next % 4] <= own - WINDOW then begins = next end
    end
    if begins then
      call('UNLINK', KEYS[PAST + begins])
      call('HSET', KEYS[PAST + begins], '', '')
      g[2], g[2 + begins], g[6 + begins], changed = begins, own, 0, true
    end
    if changed then call('HSET', M, 'past', struct.pack(RING, unpack(g, 1, 10))) end
    return g
  end
  function write_past(notes)
    if not ends then return end
    local g = turn()
    local new = call('HSET', KEYS[PAST + g[2]], unpack(ends))
    ends = nil
    if not notes or new == 0 then return end
    g[6 + g[2]] = g[6 + g[2]] + new
    call('HSET', M, 'past', struct.pack(RING, unpack(g, 1, 10)))
  end
  function unmark(id, was)
    if #was > OUTCOME_BYTES then call('HSET', KEYS[PAST + turn()[2]], id, sub(was, 1, OUTCOME_BYTES)) end
  end
  function notes_left()
    -- Turned also where nothing is noted: else what is there would never be older than the window.
    local g, left = turn(), NOTES_MAX
    for k = 1, 4 do
      local over = k == g[2] and own or g[3 + k % 4]
      if g[2 + k] > 0 and over > own - WINDOW then left = left - g[6 + k] end
    end
    return left
  end
end
