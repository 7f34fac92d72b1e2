//! Delayed messages of other systems that live in Redis, read page by page; nothing in the source is changed.
//!
//! Upstream: `duetime import --from`. Downstream: the Redis of the other system. Each kind of system is one file under
//! `kinds`, which says which keys it reads and which it leaves.

mod fingerprint;
mod id;
mod item;
mod kinds;
mod layout;
mod options;
mod reader;
mod source;

pub use fingerprint::Fingerprint;
pub use id::spell_id;
pub use item::Item;
pub use options::{Kind, ScoreUnit, SourceError, SourceOptions};
pub use source::{Left, Page, Place, Source};
