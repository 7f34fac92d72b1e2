//! The scripts, put together from the files under `lua/`.

use duetime_redis::Script;

const PRELUDE: &str = include_str!("../lua/prelude.lua");
const NOT_AFTER: &str = include_str!("../lua/not_after.lua");
const RING: &str = include_str!("../lua/ring.lua");
/// Names of the rings: what one kind of call remembers never pushes out what another does.
const OF_CLAIMS: &str = "local RING = 'rq'\n";
const OF_CANCELS: &str = "local RING = 'cx'\n";
const OF_EXTENSIONS: &str = "local RING = 'ex'\n";
const OF_OLD_HOMES: &str = "local RING = 'ol'\n";
const DEADLINE: &str = include_str!("../lua/deadline.lua");
const DEAD: &str = include_str!("../lua/dead.lua");
const BODY: &str = include_str!("../lua/body.lua");
const MAKE: &str = include_str!("../lua/make.lua");
const OLD: &str = include_str!("../lua/old.lua");
/// What follows [`OLD`] becomes a function, which may return where it likes.
const ACT: &str = "local function act()\n";
const ACTED: &str = "\nend\nreturn { found, kept > 0 and act() or 0 }\n";
/// What the script that settles needs.
const OF_SETTLE: [&str; 4] = [DEAD, DEADLINE, OF_EXTENSIONS, RING];
const ENQUEUE: &str = include_str!("../lua/enqueue.lua");
const SETTLE: &str = include_str!("../lua/settle.lua");
const CANCEL: &str = include_str!("../lua/cancel.lua");
const RESCHEDULE: &str = include_str!("../lua/reschedule.lua");
const SETTLE_DEAD: &str = include_str!("../lua/settle_dead.lua");
const GET: &str = include_str!("../lua/get.lua");

/// All scripts; made once for a store.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) enqueue: Script,
    pub(crate) claim: Script,
    pub(crate) hand_over: Script,
    pub(crate) ack: Script,
    pub(crate) settle: Script,
    pub(crate) cancel: Script,
    pub(crate) reschedule: Script,
    pub(crate) settle_dead: Script,
    pub(crate) get: Script,
    pub(crate) dead_page: Script,
    pub(crate) create: Script,
    pub(crate) unmake: Script,
    pub(crate) settings: Script,
    pub(crate) topic_note: Script,
    pub(crate) topic_swap: Script,
    pub(crate) fence: Script,
    pub(crate) scan: Script,
    pub(crate) take: Script,
    pub(crate) outbox: Script,
    pub(crate) put: Script,
    pub(crate) memory: Script,
    pub(crate) renumber: Script,
    pub(crate) old: OldScripts,
}

/// The scripts on ids at their old home.
#[derive(Debug)]
pub(crate) struct OldScripts {
    pub(crate) enqueue: Script,
    pub(crate) settle: Script,
    pub(crate) cancel: Script,
    pub(crate) reschedule: Script,
    pub(crate) settle_dead: Script,
    pub(crate) get: Script,
}

impl OldScripts {
    /// `items`: FIRST, STRIDE, AT, COUNT, REMOVES and PAIRS, see `old.lua`.
    fn script(name: &'static str, allow_oom: bool, items: &str, parts: &[&str], body: &str) -> Script {
        let items = format!("local FIRST, STRIDE, AT, COUNT, REMOVES, PAIRS = {items}\n");
        let before = if items.contains("true, false") { [OF_OLD_HOMES, RING].concat() } else { String::new() };
        Script::new(name, allow_oom, &[PRELUDE, &before, &items, OLD, &parts.concat(), ACT, body, ACTED])
    }

    fn new() -> Self {
        Self {
            enqueue: Self::script("enqueue_old", false, "11, 2, 1, 2, false, true", &[], ENQUEUE),
            settle: Self::script("settle_old", true, "6, 5, 0, 5, true, false", &OF_SETTLE, SETTLE),
            cancel: Self::script("cancel_old", true, "3, 1, 0, nil, true, false", &[OF_CANCELS, RING], CANCEL),
            reschedule: Self::script("reschedule_old", true, "6, 3, 0, 5, false, false", &[], RESCHEDULE),
            settle_dead: Self::script("settle_dead_old", true, "6, 1, 0, nil, true, false", &[], SETTLE_DEAD),
            get: Self::script("get_old", true, "2, 1, 0, nil, false, false", &[], GET),
        }
    }
}

impl Scripts {
    pub(crate) fn new() -> Self {
        let claim = [include_str!("../lua/claim.lua"), include_str!("../lua/claim_write.lua")].concat();
        Self {
            enqueue: Script::new("enqueue", false, &[PRELUDE, ENQUEUE]),
            claim: Script::new("claim", true, &[PRELUDE, DEAD, DEADLINE, OF_CLAIMS, RING, &claim]),
            hand_over: Script::new("hand_over", true, &[PRELUDE, DEAD, BODY, include_str!("../lua/hand_over.lua")]),
            ack: Script::new("ack", true, &[PRELUDE, include_str!("../lua/ack.lua")]),
            settle: Script::new("settle", true, &[PRELUDE, &OF_SETTLE.concat(), SETTLE]),
            cancel: Script::new("cancel", true, &[PRELUDE, OF_CANCELS, RING, CANCEL]),
            reschedule: Script::new("reschedule", true, &[PRELUDE, RESCHEDULE]),
            settle_dead: Script::new("settle_dead", true, &[PRELUDE, SETTLE_DEAD]),
            get: Script::new("get", true, &[PRELUDE, GET]),
            dead_page: Script::new("dead_page", true, &[PRELUDE, include_str!("../lua/dead_page.lua")]),
            create: Script::new("create", false, &[NOT_AFTER, MAKE, include_str!("../lua/create.lua")]),
            unmake: Script::new("unmake", true, &[NOT_AFTER, include_str!("../lua/unmake.lua")]),
            settings: Script::new("settings", true, &[NOT_AFTER, include_str!("../lua/settings.lua")]),
            topic_note: Script::new("topic_note", true, &[NOT_AFTER, include_str!("../lua/topic_note.lua")]),
            topic_swap: Script::new("topic_swap", true, &[NOT_AFTER, include_str!("../lua/topic_swap.lua")]),
            fence: Script::new("fence", true, &[NOT_AFTER, MAKE, include_str!("../lua/fence.lua")]),
            scan: Script::new("scan", true, &[PRELUDE, include_str!("../lua/scan.lua")]),
            take: Script::new("take", true, &[PRELUDE, include_str!("../lua/take.lua")]),
            outbox: Script::new("outbox", true, &[PRELUDE, include_str!("../lua/outbox.lua")]),
            put: Script::new("put", false, &[PRELUDE, include_str!("../lua/put.lua")]),
            memory: Script::new("memory", true, &[PRELUDE, include_str!("../lua/memory.lua")]),
            renumber: Script::new("renumber", true, &[PRELUDE, include_str!("../lua/renumber.lua")]),
            old: OldScripts::new(),
        }
    }
}
