//! Delayed messages of other systems: of those that live in Redis, read page by page, where nothing is changed; and of
//! those that cannot be listed, taken out batch by batch.
//!
//! Upstream: `duetime import --from`. Downstream: the other system. Each kind that is read is one file under `kinds`,
//! which says which keys it reads and which it leaves; each kind that is drained, one under `drain`.

mod drain;
mod fingerprint;
mod id;
mod item;
mod kinds;
mod layout;
mod options;
mod reader;
mod source;

pub use drain::{
    Drain, DrainKind, HOLD, PUT_AT, PUT_AT_SLACK_S, Place as TakenPlace, Removal, Sameness, Taken, Waiting,
};
pub use fingerprint::{Fingerprint, headers};
pub use id::spell_id;
pub use item::Item;
pub use options::{Kind, ScoreUnit, SourceError, SourceOptions};
pub use source::{Left, Page, Place, Source};
