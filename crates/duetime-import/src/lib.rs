//! Delayed messages of other systems that live in Redis, read page by page; nothing in the source is changed.
//!
//! Upstream: `duetime import --from`. Downstream: the Redis of the other system. Each kind of system is one file under
//! `kinds`, which says which keys it reads and which it leaves.

mod fingerprint;
mod id;
mod kinds;
mod reader;
mod source;

pub use fingerprint::Fingerprint;
pub use id::spell_id;
pub use source::{Item, Kind, Left, Page, Place, ScoreUnit, Source, SourceError, SourceOptions};
