-- Part of the scripts that enqueue: what stays of the ids that live, and which of those that do not are refused for
-- what is remembered of them. Before it stand layout and past.
--
-- replaces(rule): whether an enqueue by this rule may take a message's place. stays(rule, was, body, id): see there.
-- refuses(rule, outcome): whether an enqueue by this rule is refused for that. refusals, refusal: see there.
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns  nothing
-- Cost  that of remembered, see past; of stays a call, for e and l
local refuses, refusals, refusal
-- p(ut in its place), e(arliest), l(atest).
local function replaces(rule) return rule == 112 or rule == 101 or rule == 108 end
-- Whether the message with the body `was` stays, where `body` is that of the new one. By e and l one that waits does if
-- it is due no later, or no earlier, than the new one; what is claimed, or was without an answer, or is dead does not
-- wait.
local function stays(rule, was, body, id)
  if rule ~= 101 and rule ~= 108 then return rule ~= 112 end
  local score = #was >= DUE_END and call('ZSCORE', Z, id)
  if not score or score % 1000 >= 100 then return false end
  local there, given = struct.unpack(DUE, was, DUE_AT), struct.unpack(DUE, body, DUE_AT)
  if rule == 101 then return there <= given end
  return there >= given
end
if remembers then
  -- r(eject): always; those that replace: what moved lives elsewhere; b(ack): what moved alone may be scheduled.
  function refuses(rule, outcome) return rule == 114 or (byte(outcome) == MOVED) == replaces(rule) end
  -- Which of two outcomes of an id counts, as memory.rs of duetime-core says it.
  local function latest(earlier, later)
    if not later then return earlier end
    local function is_over(outcome) return byte(outcome) ~= CANCELLED_BEFORE and byte(outcome) ~= MOVED end
    if byte(later) == CANCELLED_BEFORE and is_over(earlier) then return earlier end
    if byte(earlier) == CANCELLED_BEFORE and is_over(later) then return later end
    return struct.unpack('>I4', earlier, 2) > struct.unpack('>I4', later, 2) and earlier or later
  end
  -- Of n ids, by every second field from b on, those that are refused where they are new, by their rules; and whether
  -- there are any. earlier: an outcome for each that its earlier homes remember, or nil.
  function refusals(fields, b, n, rules, earlier)
    local ids = {}
    for i = 1, n do ids[i] = fields[b + 2 * i] end
    local found, any = remembered(ids), false
    for i = 1, n do
      local known = earlier and byte(earlier, 37 * i - 36) > 0 and sub(earlier, 37 * i - 36, 37 * i)
      if known then found[i] = latest(known, found[i]) end
      if found[i] and not refuses(byte(rules, i), found[i]) then found[i] = nil end
      any = any or found[i] ~= nil
    end
    return found, any
  end
  -- The outcome of an enqueue with this nonce that is refused so, and what stands for its due time.
  function refusal(outcome, nonce)
    if byte(outcome) ~= CANCELLED_BEFORE and sub(outcome, PAST_NONCE_AT, PAST_NONCE_END) == nonce then
      return 0, (struct.unpack('>I8', outcome, 14))
    end
    return 4, outcome
  end
end
