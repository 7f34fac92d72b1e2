//! The scripts, put together from the files under `lua/`.

use duetime_redis::Script;

const PRELUDE: &str = include_str!("../lua/prelude.lua");
const RING: &str = include_str!("../lua/ring.lua");
/// Names of the rings: what one kind of call remembers never pushes out what another does.
const OF_CLAIMS: &str = "local RING = 'rq'\n";
const OF_CANCELS: &str = "local RING = 'cx'\n";
const OF_EXTENSIONS: &str = "local RING = 'ex'\n";
const DEAD: &str = include_str!("../lua/dead.lua");

/// All scripts; made once for a store.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) enqueue: Script,
    pub(crate) claim: Script,
    pub(crate) ack: Script,
    pub(crate) settle: Script,
    pub(crate) cancel: Script,
    pub(crate) reschedule: Script,
    pub(crate) settle_dead: Script,
    pub(crate) get: Script,
    pub(crate) dead_page: Script,
    pub(crate) create: Script,
    pub(crate) topic_swap: Script,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        let claim = [include_str!("../lua/claim.lua"), include_str!("../lua/claim_write.lua")].concat();
        Self {
            enqueue: Script::new("enqueue", false, &[PRELUDE, include_str!("../lua/enqueue.lua")]),
            claim: Script::new("claim", true, &[PRELUDE, DEAD, OF_CLAIMS, RING, &claim]),
            ack: Script::new("ack", true, &[PRELUDE, include_str!("../lua/ack.lua")]),
            settle: Script::new(
                "settle",
                true,
                &[PRELUDE, DEAD, OF_EXTENSIONS, RING, include_str!("../lua/settle.lua")],
            ),
            cancel: Script::new("cancel", true, &[PRELUDE, OF_CANCELS, RING, include_str!("../lua/cancel.lua")]),
            reschedule: Script::new("reschedule", true, &[PRELUDE, include_str!("../lua/reschedule.lua")]),
            settle_dead: Script::new("settle_dead", true, &[PRELUDE, include_str!("../lua/settle_dead.lua")]),
            get: Script::new("get", true, &[PRELUDE, include_str!("../lua/get.lua")]),
            dead_page: Script::new("dead_page", true, &[PRELUDE, include_str!("../lua/dead_page.lua")]),
            create: Script::new("create", false, &[include_str!("../lua/create.lua")]),
            topic_swap: Script::new("topic_swap", true, &[include_str!("../lua/topic_swap.lua")]),
        }
    }
}
