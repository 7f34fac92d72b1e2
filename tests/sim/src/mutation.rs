//! Rules of the protocol that can be taken out, one at a time, to see that the simulation notices: edits of the product's
//! own scripts, and what a client, or the node that it is of, may leave out.

use duetime_small_redis::Edit;
use std::sync::Arc;

use crate::scripts::{
    ACK, BOUND, CANCEL, CANCEL_IF, CLAIM, CREATE, DEADLINE, EDIT_DEAD, ENQUEUE, FENCE, File, NOT_AFTER, PRELUDE,
    PRESENT, PUT, RECALL, REFUSAL, RESTORE, SCAN, SEAL, SETTLE, SETTLE_DEAD, SOURCE, TAKE, UNMAKE,
};

/// Where the store puts more into the text of a file.
const MORE: &str = " --[[MORE]]";

/// One piece of a file's text, and what stands there instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    file: File,
    find: &'static str,
    instead: &'static str,
    /// It is in the first line of each script of the file, which the store writes.
    in_header: bool,
}

/// A rule that is left out. See `docs/MODEL.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// As it is written on the command line.
    pub name: &'static str,
    /// What no longer holds.
    pub rule: &'static str,
    pieces: &'static [Piece],
}

const fn piece(file: File, find: &'static str, instead: &'static str) -> Piece {
    Piece { file, find, instead, in_header: false }
}

const fn header(file: File, find: &'static str, instead: &'static str) -> Piece {
    Piece { file, find, instead, in_header: true }
}

/// Who deletes a topic counts its messages, and then deletes it whatever it holds.
const DELETION_BY_COUNTS: &str = "deletion-by-counts";
/// Connections are not ended, and scripts know no end.
const LATE_CALLS: &str = "late-calls";
/// Who removes a message to hand it out acks it.
const REMOVAL_BY_ACK: &str = "removal-by-ack";
/// What a bulk plan removed without an answer is put back before that call is over.
const UNDO_AT_ONCE: &str = "undo-at-once";
/// What a client has given up is carried out when its node gets to it.
const REQUESTS_WITHOUT_END: &str = "requests-without-end";

/// Who settles a message of a series ends it, and writes the next one by a call of its own.
const NEXT_BY_ITSELF: &str = "next-by-itself";

macro_rules! mutations {
    ($($name:expr, $rule:literal: [$($piece:expr),* $(,)?];)*) => {
        /// All of them.
        pub const ALL: &[Mutation] = &[$(Mutation { name: $name, rule: $rule, pieces: &[$($piece),*] }),*];
    };
}

mutations! {
    LATE_CALLS, "a call is not carried out after its end": [
        piece(PRELUDE, "if own - till > 0 then", "if false then"),
        piece(NOT_AFTER, "if late > 0 then", "if false then"),
    ];
    REQUESTS_WITHOUT_END, "a request that its client gave up is not begun any more": [];
    REMOVAL_BY_ACK, "a removal is done by the very call that did it, and no repetition passes for it": [];
    UNDO_AT_ONCE, "what a plan may still be removing is put back once that is over": [];
    "restored-by-any-plan", "what a plan removed is put back by that one alone": [
        piece(RESTORE, ".. UNDOABLE .. A[8]", ".. sub(was, -9)"),
    ];
    "restored-after-a-cancel", "what was cancelled after a plan removed it is not put back": [
        piece(CANCEL, "if past[k] then unmark(gone[k], past[k]) end", ""),
    ];
    "revivals-not-counted", "a look during which dead letters lived again says nothing": [
        piece(SCAN, "tonumber(call('HGET', M, 'revived') or 0)", "0"),
    ];
    "any-record", "a call names the record that its shard has": [
        piece(PRELUDE, "if not meta[1] or meta[1] .. ' ' .. (meta[4] or '') ~= caller then", "if not meta[1] then"),
    ];
    "any-life", "a call names the life that its shard is of": [
        piece(
            PRELUDE,
            "meta[1] .. ' ' .. (meta[4] or '') ~= caller",
            "meta[1] % 1048576 ~= string.match(caller, '^%d+') % 1048576",
        ),
    ];
    "any-change", "a record is named by its epoch and its rid together": [
        piece(PRELUDE, "meta[1] .. ' ' .. (meta[4] or '') ~= caller", "meta[1] ~= string.match(caller, '^%d+')"),
    ];
    "late-creation", "a creation takes no later life for a left-over": [
        piece(CREATE, "if was and was >= life then", "if false then"),
        piece(CREATE, "if held() > 0 and not", "if false and not"),
    ];
    "creation-over-messages", "a creation empties no shard that nobody deleted": [
        piece(CREATE, "if held() > 0 and not", "if false and not"),
    ];
    "fence-of-another-life", "a fence of another life touches nothing": [
        piece(FENCE, "if not was[1] or life_of(was[1]) < life then", "if not was[1] or life_of(was[1]) ~= life then"),
        piece(FENCE, "if held() > 0 and ARGV[8] ~= '2'", "if false and ARGV[8] ~= '2'"),
        piece(FENCE, "if ARGV[8] == '0' then", "if false then"),
    ];
    "deletion-of-any-life", "a deletion removes no later life's shard": [
        piece(UNMAKE, "> life then return 0 end", "> math.huge then return 0 end"),
    ];
    "deletion-over-messages", "a deletion without force closes what it has seen to be empty": [
        piece(SEAL, "call('HSET', KEYS[5], 'epoch', format('%.0f', life_of(there) * LIFE), 'sealed', ARGV[1])", "there = there"),
    ];
    DELETION_BY_COUNTS, "a deletion without force is one question to each shard, and takes nothing with it": [];
    "deletion-without-a-look", "a deletion without force looks at what shards hold": [
        piece(SEAL, "local messages = held()", "local messages = 0"),
    ];
    "due-by-the-later-clock", "what is due is decided by the earlier clock": [
        piece(PRESENT, "if apart < 0 then return own, caller, false end", "if apart < 0 then return caller, caller, false end"),
        piece(PRESENT, "return caller, own, false", "return own, own, false"),
    ];
    "delay-of-one-clock", "a delay counts from the later clock, and both agree": [
        piece(PRESENT, "if apart > 2000 or apart < -2000 then", "if false then"),
        piece(PRESENT, "if apart < 0 then return own, caller, false end", "if apart < 0 then return own, own, false end"),
    ];
    "hidden-from-the-earlier-clock", "what a claim hides counts from the later clock": [
        piece(
            CLAIM,
            "if not got[1] then return reply(0, found, 0, 0, 1, got, got) end\nlocal deadline, class = give(later + ARGV[4]",
            "if not got[1] then return reply(0, found, 0, 0, 1, got, got) end\nlocal deadline, class = give(now + ARGV[4]",
        ),
    ];
    "deadlines-run-ahead", "a class that is far ahead is passed over": [
        piece(DEADLINE, "if last + 1 - wanted <= near then", "if true then"),
    ];
    "deadlines-of-all-shards", "shards that ids leave and shards that they go to give other deadlines": [
        piece(DEADLINE, "return parity and at % 2 ~= parity and at + 1 or at", "return at"),
    ];
    "unanswered-is-over", "a hand-over that had no answer may have arrived": [
        piece(SETTLE, "local mark = class == '9' and 900 or 0", "local mark = 0"),
    ];
    "full-for-what-moves", "what is on its way between shards is put on a full server too": [
        header(PUT, "flags=allow-oom", ""),
    ];
    "deadlines-given-twice", "a deadline is given once": [
        piece(DEADLINE, "local at = math.max(wanted, taken + 1)", "local at = wanted - wanted % 5000 + 5000"),
    ];
    "no-reply-cache", "a repeated call is answered as the first time": [
        piece(RECALL, "if since ~= '' then", "if false then"),
    ];
    "answer-forgotten", "of a cancel the answer of each item is remembered": [
        piece(CANCEL, "all and name or name .. ' ' .. cmsgpack.pack(out)", "name"),
    ];
    "claims-forgotten", "a claim knows its repetition": [
        piece(CLAIM, "local known = recall(request)", "local known"),
    ];
    "the-attempts-of-a-message-forgotten", "a message has the attempts that it says, whatever its topic says": [
        piece(CLAIM, "own_most(got, i, held > 0) or usual", "usual"),
    ];
    "in-flight-not-counted", "of a topic with a bound no more is in flight": [
        piece(BOUND, "if not most or most - flight >= tonumber(wanted) then return wanted, 0 end", "do return wanted, 0 end"),
    ];
    "places-of-others", "a new shard has the places that old ones gave up": [
        piece(BOUND, "if most and ARGV[15] == '1' then", "if false then"),
    ];
    "ack-of-any-score", "a receipt is the score of its own claim": [
        piece(SETTLE, "if is == mine then", "if is then"),
    ];
    NEXT_BY_ITSELF, "the next of a series is written in the step that ends the one before": [];
    "next-of-any-claim", "the next of a series is written by the receipt of the one before alone": [
        piece(SETTLE, "if is == mine then", "if is == mine or follows and is then"),
    ];
    "acks-not-remembered", "the script that takes a message out writes what became of it": [
        piece(ACK, "if remembers then deliver(A, first, final, score) end", ""),
    ];
    "expiries-not-remembered", "the script that ends what expired writes that down": [
        piece(
            SETTLE,
            "if remembers then ended(kind == 'a' and DELIVERED or EXPIRED, id, call('HGET', B, id), claimed) end",
            "if remembers and kind == 'a' then ended(DELIVERED, id, call('HGET', B, id), claimed) end",
        ),
    ];
    "dead-letters-of-any-age", "a dead letter is kept until it is as old as its topic says": [
        piece(SETTLE_DEAD, "int((now - A[8]) * 1000 + 999)", "int(now * 1000 + 999)"),
    ];
    "edits-of-whatever-is-there", "an edit is made of the dead letter that was read": [
        piece(
            EDIT_DEAD,
            "if cursor and is == nonce and math.floor(cursor / 1000) == tonumber(died) then",
            "if not moves or cursor and is == nonce and math.floor(cursor / 1000) == tonumber(died) then",
        ),
    ];
    "edits-of-any-death", "a letter that was redriven and died again is another": [
        piece(EDIT_DEAD, "is == nonce and math.floor(cursor / 1000) == tonumber(died) then", "is == nonce then"),
    ];
    "moved-out-whatever-it-is", "a letter is moved out as the one that was scheduled in the other topic": [
        piece(
            EDIT_DEAD,
            "if cursor and is == nonce and math.floor(cursor / 1000) == tonumber(died) then",
            "if was and moves or cursor and is == nonce and math.floor(cursor / 1000) == tonumber(died) then",
        ),
    ];
    "edits-not-known-again", "a repeated edit finds the message that it made": [
        piece(EDIT_DEAD, "elseif is and not moves and is == sub(tail, 1, 8) then", "elseif false then"),
    ];
    "moved-whatever-it-is", "a message moves as the version that was copied": [
        piece(CANCEL_IF, "if sub(body, NONCE_AT, NONCE_END) == A[3 * i + 5] then", "if true then"),
        piece(CANCEL_IF, "return s and tonumber(s) == tonumber(given) and", "return s and"),
    ];
    "moved-is-not-remembered", "what moved is remembered as that": [
        piece(CANCEL_IF, "ended(end_of, id, body, tries, false, mark)", ""),
    ];
    "source-remembers-nothing", "a shard that is not the home of an id says what it remembers of it": [
        piece(SOURCE, "if found[i] == 1 and past[i] then became[i] = past[i] end", ""),
    ];
    "replacement-of-the-claimed", "a replacement says what it replaced": [
        piece(ENQUEUE, "if class > 0 then outcome[i] = 3 end", ""),
        piece(
            ENQUEUE,
            "if was and (same or stays(byte(A[7], i), was, body, id)) then",
            "if was and stays(byte(A[7], i), was, body, id) then",
        ),
    ];
    "the-other-of-two", "of two messages that wait the one that is due earlier, or later, is there": [
        piece(REFUSAL, "return there >= given", "return there < given"),
    ];
    "a-nack-is-done", "what is given back is not done, and holds the watermark by its first due time": [
        piece(SETTLE, "elseif kind == 'n' then\n", "elseif kind == 'n' then\n      if U then call('ZREM', U, id) end\n"),
    ];
    "first-due-time-left-behind", "a move takes the first due time along": [
        piece(PUT, "if u[1] then call('ZADD', U, unpack(u)) end", ""),
    ];
    "copied-not-moved", "what is frozen is nowhere else": [
        piece(TAKE, "if live[1] then call('ZREM', Z, unpack(live)) end", ""),
    ];
    "put-twice", "a batch is put once": [
        piece(PUT, "if last == ARGV[3] .. ' ' .. ARGV[4] then return 0 end", ""),
        piece(PUT, "if tonumber(string.match(last, '^%d+')) >= tonumber(ARGV[3]) then return last end", ""),
        piece(PUT, "if not scores[i] and not graves[i] and not seen[id] then", "if not seen[id] then"),
    ];
}

impl Mutation {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|one| one.name == name)
    }

    pub(crate) fn is_late_calls(self) -> bool {
        self.name == LATE_CALLS
    }

    pub(crate) fn is_deletion_by_counts(self) -> bool {
        self.name == DELETION_BY_COUNTS
    }

    pub(crate) fn is_removal_by_ack(self) -> bool {
        self.name == REMOVAL_BY_ACK
    }

    pub(crate) fn is_next_by_itself(self) -> bool {
        self.name == NEXT_BY_ITSELF
    }

    pub(crate) fn is_undo_at_once(self) -> bool {
        self.name == UNDO_AT_ONCE
    }

    pub(crate) fn is_requests_without_end(self) -> bool {
        self.name == REQUESTS_WITHOUT_END
    }

    /// Pieces whose text is not in its file exactly once: the product has changed, and this is no mutation any more.
    #[must_use]
    pub fn faults(self) -> Vec<String> {
        let times = |piece: &Piece| piece.file.text.matches(piece.find).count();
        let wrong = self.pieces.iter().filter(|piece| !piece.in_header && times(piece) != 1);
        let shown =
            |piece: &Piece| format!("{}: {} has {:?} {} times", self.name, piece.file.name, piece.find, times(piece));
        wrong.map(shown).collect()
    }

    /// How loaded scripts are changed.
    pub(crate) fn edit(self) -> Edit {
        Arc::new(move |text| {
            let mut edited = text.to_owned();
            // One script has more in the place of the mark.
            let has = |file: File| file.text.split(MORE).all(|part| text.contains(part));
            for piece in self.pieces.iter().filter(|piece| has(piece.file)) {
                assert!(edited.contains(piece.find), "{}: no {:?} in {}", self.name, piece.find, piece.file.name);
                edited = edited.replacen(piece.find, piece.instead, 1);
            }
            (edited != text).then_some(edited)
        })
    }
}
