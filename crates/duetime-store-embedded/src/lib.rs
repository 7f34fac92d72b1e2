//! `Store` in one folder on one node: SQLite, one writer thread, one fsync for many requests.
//!
//! Upstream: the program, which opens it, and whoever speaks `Store`. Downstream: the file system.
//! Knows nothing of Redis and of other nodes; a second process on the same folder is refused.
//!
//! ```text
//! callers ──bounded channel──▶ writer ──one transaction, many requests──▶ write-ahead log
//!    ▲                            │ claims, nacks: answered once committed
//!    └────────── answers ◀── syncer: enqueues, edits, acks: answered once on the disk
//! ```

mod background;
mod backup;
mod body;
mod checkpoint;
mod claim;
mod clock;
mod config;
mod damage;
mod directory;
mod edit;
mod edit_dead;
mod enqueue;
mod fault;
mod files;
mod folder;
mod job;
mod load;
mod moves;
mod past;
mod read;
mod records;
mod reserve;
mod resize;
mod restart;
mod restore;
mod settle;
mod shard;
mod shortage;
mod store;
mod sweep;
mod synced;
mod syncer;
mod topics;
mod verify;
mod watch;
mod watermark;
mod write_context;
mod writer;

pub use backup::{BackupCounts, check_backup};
pub use config::EmbeddedStoreConfig;
pub use store::EmbeddedStore;
