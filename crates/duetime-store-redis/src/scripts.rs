//! The scripts, put together from the files under `lua/`.

use duetime_redis::{NOT_AFTER, Script};

use crate::caller_time::HINT_WITHIN;

const PRELUDE: &str = include_str!("../lua/prelude.lua");
const PRESENT: &str = include_str!("../lua/present.lua");
const LAYOUT: &str = include_str!("../lua/layout.lua");
const PAST: &str = include_str!("../lua/past.lua");
const REFUSAL: &str = include_str!("../lua/refusal.lua");
const RECALL: &str = include_str!("../lua/recall.lua");
const PLACE: &str = include_str!("../lua/place.lua");
const RING: &str = include_str!("../lua/ring.lua");
const DUE: &str = include_str!("../lua/due.lua");
const DEADLINE: &str = include_str!("../lua/deadline.lua");
const BOUND: &str = include_str!("../lua/bound.lua");
const BACKOFF: &str = include_str!("../lua/backoff.lua");
const DEAD: &str = include_str!("../lua/dead.lua");
const MAX_ATTEMPTS: &str = include_str!("../lua/max_attempts.lua");
const BODY: &str = include_str!("../lua/body.lua");
const CLAIMED: &str = include_str!("../lua/claimed.lua");
const REDRIVEN: &str = include_str!("../lua/redriven.lua");
const MAKE: &str = include_str!("../lua/make.lua");
const SOURCE: &str = include_str!("../lua/source.lua");
/// Where the prelude reads more fields of meta for who needs them, in the same call.
const MORE: &str = " --[[MORE]]";
/// What `ring.lua` has of meta, `deadline.lua` for the class of a claim, and `bound.lua`.
const OF_CLAIM: &str = ", 'rqn', 'rq0', 'rq1', 'rq2', 'rq3', 'rq4', 'd' .. ARGV[5], 'parity', 'looked'";
/// The arguments, as each script on a shard names them.
const ARGS: &str = "local A = ARGV\n";

/// A script that runs at a home of ids and, behind a filter, at an old one, and does not act twice.
struct Operation {
    name: &'static str,
    name_at_source: &'static str,
    /// On a full server too.
    allow_oom: bool,
    /// What stands before it.
    parts: &'static [&'static str],
    code: &'static str,
    /// Where its slot and its name are among its arguments; see `recall.lua`.
    slot_at: usize,
    items: ScriptItems,
}

/// Where a script's items are among its arguments, counted from 1; what `source.lua` has to know of it.
struct ScriptItems {
    /// The first item begins here.
    first: usize,
    /// So many arguments an item has, its id first.
    stride: usize,
    /// Their number is here.
    count_at: Option<usize>,
    /// These arguments have a letter for each item, and as many pairs as there are items follow them all (enqueue).
    letters: Option<[usize; 2]>,
    /// The script writes, and its answer is kept.
    cached: bool,
    /// Whether what is remembered of an id that is gone is the answer to an item, of `args`, `i`, `from` and `past`.
    decides: &'static str,
}

impl ScriptItems {
    fn lua(&self) -> String {
        let Self { first, stride, count_at, letters, cached, decides } = self;
        let count = count_at.map_or_else(|| "nil".to_owned(), |at| at.to_string());
        let letters = letters.map_or_else(|| "nil".to_owned(), |[one, other]| format!("{{ {one}, {other} }}"));
        format!(
            "local FIRST, STRIDE, COUNT, LETTERS, CACHED = {first}, {stride}, {count}, {letters}, {cached}\n\
             local function decides(args, i, from, past) return {decides} end\n"
        )
    }
}

impl Operation {
    fn named(&self, args: &str) -> String {
        let (slot, name) = (self.slot_at, self.slot_at + 1);
        format!("local since, slot, name = {args}[2], {args}[{slot}], {args}[{name}]\n")
    }

    fn hint() -> String {
        format!("local HINT_WITHIN_MS = {}\n", HINT_WITHIN.as_millis())
    }

    fn at_home(&self) -> Script {
        let parts = self.parts.concat();
        if !self.items.cached {
            return Script::new(self.name, self.allow_oom, &[PRELUDE, &parts, ARGS, self.code]);
        }
        let named = self.named("A");
        Script::new(self.name, self.allow_oom, &[PRELUDE, &parts, &Self::hint(), ARGS, &named, RECALL, self.code])
    }

    fn at_source(&self) -> Script {
        let parts = self.parts.concat();
        let named = self.named("A");
        let act = format!("local function act(A)\nlocal before, refused\n{named}{}end\n", self.code);
        let items = self.items.lua();
        let named = "local since, slot, name = ARGV[2], ARGV[3], ARGV[4]\n";
        let all = [PRELUDE, &parts, &Self::hint(), &act, &items, named, RECALL, SOURCE];
        Script::new(self.name_at_source, self.allow_oom, &all)
    }
}

/// The operation of a file: its name, whether a full server runs it too, what stands before it, and its items.
macro_rules! operation {
    ($name:literal, $allow_oom:literal, $parts:expr, $items:expr) => {
        Operation {
            name: $name,
            name_at_source: concat!($name, "_at_source"),
            allow_oom: $allow_oom,
            parts: &$parts,
            code: include_str!(concat!("../lua/", $name, ".lua")),
            slot_at: 3,
            items: $items,
        }
    };
}

/// Of most scripts: items that are not counted, an answer that is kept, and nothing that is remembered decides.
const ITEMS: ScriptItems =
    ScriptItems { first: 0, stride: 1, count_at: None, letters: None, cached: true, decides: "false" };

const ENQUEUE: Operation = Operation {
    slot_at: 11,
    ..operation!(
        "enqueue",
        false,
        [PRESENT, LAYOUT, PAST, REFUSAL],
        ScriptItems {
            first: 13,
            stride: 2,
            count_at: Some(3),
            letters: Some([7, 8]),
            // What comes back is for the home to decide, which gets this to know.
            decides: "byte(args[7], i) ~= 98 and refuses(byte(args[7], i), past)",
            ..ITEMS
        }
    )
};
const SETTLE: Operation = operation!(
    "settle",
    true,
    [PRESENT, LAYOUT, PAST, DEAD, DEADLINE],
    ScriptItems {
        first: 6,
        stride: 5,
        count_at: Some(5),
        decides: "(args[from + 2] == 'a' or args[from + 2] == 's') and is_ack_of(past, args[from + 1])",
        ..ITEMS
    }
);
const CANCEL: Operation = operation!("cancel", true, [LAYOUT, PAST], ScriptItems { first: 6, ..ITEMS });
/// As [`CANCEL`], which a full server refuses: where ids that are unknown are noted.
const CANCEL_NOTING: Operation = Operation { name: "cancel_noting", allow_oom: false, ..CANCEL };
const CANCEL_IF: Operation =
    operation!("cancel_if", true, [LAYOUT, PAST], ScriptItems { first: 6, stride: 3, ..ITEMS });
const RESCHEDULE: Operation = operation!(
    "reschedule",
    true,
    [PRESENT, LAYOUT, PAST],
    ScriptItems { first: 8, stride: 3, count_at: Some(7), ..ITEMS }
);
const SETTLE_DEAD: Operation =
    operation!("settle_dead", true, [PRESENT, LAYOUT, PAST, BODY, REDRIVEN], ScriptItems { first: 8, ..ITEMS });
const EDIT_DEAD: Operation = operation!(
    "edit_dead",
    false,
    [PRESENT, LAYOUT, PAST],
    ScriptItems {
        first: 8,
        stride: 4,
        decides: "args[5] == 'e' and sub(past, PAST_NONCE_AT, PAST_NONCE_END) == sub(args[from + 3], 1, 8)",
        ..ITEMS
    }
);
/// As [`EDIT_DEAD`], on a full server too: what is removed frees memory.
const MOVE_DEAD_OUT: Operation =
    Operation { name: "move_dead_out", name_at_source: "move_dead_out_at_source", allow_oom: true, ..EDIT_DEAD };
const RESTORE: Operation =
    operation!("restore", false, [LAYOUT, PAST, PLACE], ScriptItems { first: 8, stride: 5, ..ITEMS });
/// It writes nothing, so its answer is not kept.
const GET: Operation = operation!("get", true, [LAYOUT, PAST], ScriptItems { first: 2, cached: false, ..ITEMS });

/// The scripts that act on ids, in one of the two roles that a shard has to an id.
#[derive(Debug)]
pub(crate) struct IdScripts {
    pub(crate) enqueue: Script,
    pub(crate) settle: Script,
    pub(crate) cancel: Script,
    pub(crate) cancel_if: Script,
    pub(crate) reschedule: Script,
    pub(crate) settle_dead: Script,
    pub(crate) edit_dead: Script,
    pub(crate) move_dead_out: Script,
    pub(crate) get: Script,
}

impl IdScripts {
    fn new(made: fn(&Operation) -> Script) -> Self {
        Self {
            enqueue: made(&ENQUEUE),
            settle: made(&SETTLE),
            cancel: made(&CANCEL),
            cancel_if: made(&CANCEL_IF),
            reschedule: made(&RESCHEDULE),
            settle_dead: made(&SETTLE_DEAD),
            edit_dead: made(&EDIT_DEAD),
            move_dead_out: made(&MOVE_DEAD_OUT),
            get: made(&GET),
        }
    }
}

/// All scripts; made once for a store.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// Where the shard is the home of the ids.
    pub(crate) home: IdScripts,
    /// Where it was, before the shard count changed.
    pub(crate) source: IdScripts,
    /// `home.cancel`, which a full server refuses.
    pub(crate) cancel_noting: Script,
    pub(crate) claim: Script,
    pub(crate) hand_over: Script,
    pub(crate) ack: Script,
    /// At home alone: what was removed under another record is not put back.
    pub(crate) restore: Script,
    pub(crate) dead_page: Script,
    pub(crate) list: Script,
    pub(crate) record_swap: Script,
    pub(crate) create: Script,
    pub(crate) unmake: Script,
    pub(crate) seal: Script,
    pub(crate) settings: Script,
    pub(crate) made: Script,
    pub(crate) topic_note: Script,
    pub(crate) topic_swap: Script,
    pub(crate) fence: Script,
    pub(crate) scan: Script,
    pub(crate) take: Script,
    pub(crate) outbox: Script,
    pub(crate) room: Script,
    pub(crate) put: Script,
    pub(crate) memory: Script,
    pub(crate) places: Script,
    pub(crate) renumber: Script,
    pub(crate) watermark: Script,
    pub(crate) keep_watermark: Script,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            home: IdScripts::new(Operation::at_home),
            source: IdScripts::new(Operation::at_source),
            cancel_noting: CANCEL_NOTING.at_home(),
            claim: Script::new(
                "claim",
                true,
                &[
                    &PRELUDE.replace(MORE, OF_CLAIM),
                    PRESENT,
                    LAYOUT,
                    PAST,
                    DEAD,
                    DEADLINE,
                    RING,
                    DUE,
                    BACKOFF,
                    BOUND,
                    BODY,
                    MAX_ATTEMPTS,
                    CLAIMED,
                    include_str!("../lua/claim.lua"),
                ],
            ),
            hand_over: Script::new(
                "hand_over",
                true,
                &[PRELUDE, PRESENT, LAYOUT, PAST, DEAD, BODY, include_str!("../lua/hand_over.lua")],
            ),
            ack: Script::new("ack", true, &[PRELUDE, LAYOUT, PAST, ARGS, include_str!("../lua/ack.lua")]),
            restore: RESTORE.at_home(),
            dead_page: Script::new("dead_page", true, &[PRELUDE, include_str!("../lua/dead_page.lua")]),
            list: Script::new("list", true, &[PRELUDE, include_str!("../lua/list.lua")]),
            record_swap: Script::new("record_swap", true, &[NOT_AFTER, include_str!("../lua/record_swap.lua")]),
            create: Script::new("create", false, &[NOT_AFTER, MAKE, include_str!("../lua/create.lua")]),
            unmake: Script::new("unmake", true, &[NOT_AFTER, include_str!("../lua/unmake.lua")]),
            seal: Script::new("seal", true, &[NOT_AFTER, MAKE, include_str!("../lua/seal.lua")]),
            settings: Script::new("settings", true, &[NOT_AFTER, include_str!("../lua/settings.lua")]),
            made: Script::new("made", true, &[NOT_AFTER, include_str!("../lua/made.lua")]),
            topic_note: Script::new("topic_note", true, &[NOT_AFTER, include_str!("../lua/topic_note.lua")]),
            topic_swap: Script::new("topic_swap", true, &[NOT_AFTER, include_str!("../lua/topic_swap.lua")]),
            fence: Script::new("fence", true, &[NOT_AFTER, MAKE, include_str!("../lua/fence.lua")]),
            scan: Script::new("scan", true, &[PRELUDE, include_str!("../lua/scan.lua")]),
            take: Script::new("take", true, &[PRELUDE, include_str!("../lua/take.lua")]),
            outbox: Script::new("outbox", true, &[PRELUDE, include_str!("../lua/outbox.lua")]),
            room: Script::new("room", false, &[PRELUDE, include_str!("../lua/room.lua")]),
            put: Script::new("put", true, &[PRELUDE, LAYOUT, PLACE, include_str!("../lua/put.lua")]),
            memory: Script::new("memory", true, &[PRELUDE, include_str!("../lua/memory.lua")]),
            places: Script::new("places", true, &[PRELUDE, include_str!("../lua/places.lua")]),
            renumber: Script::new("renumber", true, &[PRELUDE, include_str!("../lua/renumber.lua")]),
            watermark: Script::new(
                "watermark",
                true,
                &[PRELUDE, PRESENT, LAYOUT, include_str!("../lua/watermark.lua")],
            ),
            keep_watermark: Script::new("keep_watermark", true, &[PRELUDE, include_str!("../lua/keep_watermark.lua")]),
        }
    }
}
