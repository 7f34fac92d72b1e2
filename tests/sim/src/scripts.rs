//! The product's own scripts, by their files: which one a loaded text is, and how a rule is taken out of it.

/// What a script does, for who looks on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ack,
    Settle {
        at_source: bool,
    },
    Cancel {
        at_source: bool,
    },
    CancelIf {
        at_source: bool,
    },
    Reschedule {
        at_source: bool,
    },
    /// It may make a shard, or remove one.
    Makes,
    TopicSwap,
    Other,
}

macro_rules! files {
    ($($name:ident: $file:literal;)*) => {
        /// All of them; what a script does is in the last one that its text has.
        const ALL: &[File] = &[$($name),*];
        $(pub const $name: File = File { name: $file, text: include_str!(concat!("../../../crates/duetime-", $file)) };)*
    };
}

/// One file of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    pub name: &'static str,
    pub text: &'static str,
}

files! {
    ACK: "store-redis/lua/ack.lua";
    BOUND: "store-redis/lua/bound.lua";
    CANCEL: "store-redis/lua/cancel.lua";
    CANCEL_IF: "store-redis/lua/cancel_if.lua";
    CLAIM: "store-redis/lua/claim.lua";
    CLAIMED: "store-redis/lua/claimed.lua";
    CREATE: "store-redis/lua/create.lua";
    DEAD: "store-redis/lua/dead.lua";
    DEAD_PAGE: "store-redis/lua/dead_page.lua";
    DEADLINE: "store-redis/lua/deadline.lua";
    EDIT_DEAD: "store-redis/lua/edit_dead.lua";
    ENQUEUE: "store-redis/lua/enqueue.lua";
    FENCE: "store-redis/lua/fence.lua";
    GET: "store-redis/lua/get.lua";
    HAND_OVER: "store-redis/lua/hand_over.lua";
    KEEP_WATERMARK: "store-redis/lua/keep_watermark.lua";
    LIST: "store-redis/lua/list.lua";
    MAKE: "store-redis/lua/make.lua";
    MEMORY: "store-redis/lua/memory.lua";
    NOT_AFTER: "redis/lua/not_after.lua";
    OUTBOX: "store-redis/lua/outbox.lua";
    PAST: "store-redis/lua/past.lua";
    PLACES: "store-redis/lua/places.lua";
    PRELUDE: "store-redis/lua/prelude.lua";
    PRESENT: "store-redis/lua/present.lua";
    PUT: "store-redis/lua/put.lua";
    RECALL: "store-redis/lua/recall.lua";
    RECORD_SWAP: "store-redis/lua/record_swap.lua";
    REFUSAL: "store-redis/lua/refusal.lua";
    RENUMBER: "store-redis/lua/renumber.lua";
    RESCHEDULE: "store-redis/lua/reschedule.lua";
    RESTORE: "store-redis/lua/restore.lua";
    ROOM: "store-redis/lua/room.lua";
    SCAN: "store-redis/lua/scan.lua";
    SEAL: "store-redis/lua/seal.lua";
    SETTLE: "store-redis/lua/settle.lua";
    SETTLE_DEAD: "store-redis/lua/settle_dead.lua";
    SOURCE: "store-redis/lua/source.lua";
    TAKE: "store-redis/lua/take.lua";
    TOPIC_NOTE: "store-redis/lua/topic_note.lua";
    TOPIC_SWAP: "store-redis/lua/topic_swap.lua";
    UNMAKE: "store-redis/lua/unmake.lua";
    WATERMARK: "store-redis/lua/watermark.lua";
}

/// The name of the script that a loaded text is.
pub fn name_of(text: &str) -> &'static str {
    let parts = [NOT_AFTER, PRELUDE, BOUND, PRESENT, DEADLINE, RECALL, SOURCE, DEAD, MAKE, PAST, REFUSAL, CLAIMED];
    let whole = ALL.iter().filter(|file| !parts.contains(file));
    let last = whole.filter_map(|file| Some((text.rfind(file.text)?, file.name))).max();
    last.and_then(|(_, name)| name.rsplit('/').next()?.strip_suffix(".lua")).unwrap_or("script")
}

/// Which script a loaded text is.
pub fn kind_of(text: &str) -> Kind {
    let is = |file: File| text.contains(file.text);
    let at_source = is(SOURCE);
    if is(ACK) {
        Kind::Ack
    } else if is(SETTLE) {
        Kind::Settle { at_source }
    } else if is(CANCEL) {
        Kind::Cancel { at_source }
    } else if is(CANCEL_IF) {
        Kind::CancelIf { at_source }
    } else if is(RESCHEDULE) {
        Kind::Reschedule { at_source }
    } else if is(CREATE) || is(FENCE) || is(UNMAKE) {
        Kind::Makes
    } else if is(TOPIC_SWAP) {
        Kind::TopicSwap
    } else {
        Kind::Other
    }
}
