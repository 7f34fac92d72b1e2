//! A copy of the whole store while it serves.
//!
//! A read transaction holds the store at one moment. What the log has until then is copied into the database file;
//! nothing later can be, for as long as the transaction lasts. So the file is the store of that moment, and is read like
//! any other, without a lock and without a second copy on the disk. Meanwhile the log grows, which is bounded.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use duetime_core::{Backup, BackupError, BackupStore, StoreError};
use rusqlite::Connection;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::body;
use crate::checkpoint::{BackupPlace, Copied, SharedCheckpoint};
use crate::fault::{Fault, sql_error};
use crate::files::StoreFiles;
use crate::folder::{PAGE_BYTES, open_copy, open_reader};
use crate::job::CommitMode;
use crate::store::{EmbeddedStore, plain};
use crate::write_context::WriteContext;

const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks that wait for whoever takes them.
const CHUNKS_MAX: usize = 4;
/// The disk is read no faster: the node has other work.
const BYTES_PER_S: u64 = 64 << 20;
/// Whoever takes nothing for this long is gone.
const TAKES_WITHIN: Duration = Duration::from_secs(30);
/// The log may grow to so much meanwhile, or to the size of the database.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// How long a log that others read is waited for, and how often it is tried.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_millis(100);

const DOING: &str = "back up the store";

/// The store as it was at one moment. The read transaction ends before another backup may begin.
#[derive(Debug)]
struct Snapshot {
    conn: Connection,
    files: Arc<StoreFiles>,
    bytes: u64,
    place: BackupPlace,
}

/// What a copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupCounts {
    /// Topics.
    pub topics: u64,
    /// Messages, dead letters too.
    pub messages: u64,
}

/// Begins the read transaction and copies the log; `None`: not all of it could be copied.
fn snapshot(ctx: &WriteContext, shared: &Arc<SharedCheckpoint>, place: BackupPlace) -> Result<Option<Snapshot>, Fault> {
    let conn = open_reader(&ctx.folder)?;
    conn.execute_batch("BEGIN")?;
    // The transaction begins with the first read.
    let pages: i64 =
        conn.query_row("SELECT page_count FROM pragma_page_count, (SELECT count(*) FROM topic)", [], |row| row.get(0))?;
    Ok(match shared.copy_for_backup(&ctx.conn) {
        Copied::Whole => {
            let bytes = pages.unsigned_abs() * PAGE_BYTES;
            Some(Snapshot { conn, files: ctx.files.clone(), bytes, place })
        }
        Copied::Part | Copied::Failed => None,
    })
}

fn counts(conn: &Connection) -> rusqlite::Result<BackupCounts> {
    let count = |table: &str| conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0));
    Ok(BackupCounts { topics: count("topic")?.unsigned_abs(), messages: count("message")?.unsigned_abs() })
}

impl Snapshot {
    /// Reads all of it, no faster than the bound, and says why it ended early.
    async fn send(self, chunks: &mpsc::Sender<Result<Bytes, StoreError>>) -> Result<(), &'static str> {
        let began = Instant::now();
        let log_max = LOG_BYTES_MAX.max(self.bytes);
        let mut at = 0;
        while at < self.bytes {
            if self.place.is_stopped() {
                return Err(
                    "there is no space left for the log, which cannot be copied while a backup is made; free some",
                );
            }
            if self.place.log_bytes() > log_max {
                return Err(
                    "the log grew beyond its bound meanwhile; make backups when less is written, or take them faster",
                );
            }
            let (files, len) = (self.files.clone(), CHUNK_BYTES.min(self.bytes - at));
            let read = tokio::task::spawn_blocking(move || {
                let mut chunk = vec![0; usize::try_from(len).expect("a chunk fits")];
                files.database.file().read_exact_at(&mut chunk, at).map(|()| Bytes::from(chunk))
            });
            let chunk = read.await.map_err(|_| "the node ends")?.map_err(|_| "the database file could not be read")?;
            match tokio::time::timeout(TAKES_WITHIN, chunks.send(Ok(chunk))).await {
                Ok(Ok(())) => at += len,
                Ok(Err(_)) => return Err("whoever asked for it is gone"),
                Err(_) => return Err("whoever asked for it took nothing for 30 s"),
            }
            tokio::time::sleep_until(began + Duration::from_secs_f64(at as f64 / BYTES_PER_S as f64)).await;
        }
        Ok(())
    }
}

#[async_trait]
impl BackupStore for EmbeddedStore {
    async fn backup(&self) -> Result<Backup, BackupError> {
        let unavailable = |what: &'static str| StoreError::Unavailable { doing: DOING, source: what.into() };
        let began = Instant::now();
        let snapshot = loop {
            let place = self.checkpoint.begin_backup().ok_or(BackupError::Running)?;
            let (shared, mut place) = (self.checkpoint.clone(), Some(place));
            let act = move |ctx: &mut WriteContext| match place.take() {
                Some(place) => snapshot(ctx, &shared, place),
                // It is run again only after an error that took the place along.
                None => Ok(None),
            };
            if let Some(snapshot) = self.ask(DOING, CommitMode::OwnTransaction, plain(0), act).await? {
                break snapshot;
            }
            if began.elapsed() > BEGINS_WITHIN {
                return Err(
                    unavailable("another process reads the database, so its log cannot be copied; end it").into()
                );
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        };
        let counted = tokio::task::spawn_blocking(move || counts(&snapshot.conn).map(|counts| (snapshot, counts)));
        let counted = counted.await.map_err(|_| unavailable("the node ends"))?;
        let folder = Path::new(&self.file).parent().unwrap_or(Path::new("."));
        let (snapshot, BackupCounts { topics, messages }) =
            counted.map_err(|error| sql_error(&error, DOING, folder))?;
        let (bytes, (to_taker, chunks)) = (snapshot.bytes, mpsc::channel(CHUNKS_MAX));
        info!(bytes, messages, topics, "a backup is being made");
        tokio::spawn(async move {
            match snapshot.send(&to_taker).await {
                Ok(()) => info!(bytes, took_ms = began.elapsed().as_millis() as u64, "the backup was sent"),
                Err(why) => {
                    warn!(why, "the backup ended early and is of no use");
                    // Without it, the copy would only be too short.
                    let _ = to_taker.try_send(Err(StoreError::Unavailable { doing: DOING, source: why.into() }));
                }
            }
        });
        Ok(Backup { bytes, messages, topics, chunks })
    }
}

/// Reads a copy whole, without changing it: its structure, each message, and how many there are.
///
/// # Errors
///
/// [`StoreError::Damaged`]: it is no whole copy. [`StoreError::Setup`]: it cannot be opened.
pub fn check_backup(file: &Path) -> Result<BackupCounts, StoreError> {
    let damaged = |what: String| StoreError::Damaged(format!("{}: {what}; make another backup", file.display()));
    let failed = |error: rusqlite::Error| damaged(error.to_string());
    let conn = open_copy(file).map_err(|error| StoreError::Setup(format!("{}: {error}", file.display())))?;
    let found: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if found != "ok" {
        return Err(damaged(found));
    }
    let counted = counts(&conn).map_err(failed)?;
    let mut select = conn.prepare("SELECT id, body FROM message").map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut read = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        let id: String = row.get(0).map_err(failed)?;
        let body = row.get_ref(1).and_then(|value| Ok(value.as_blob()?)).map_err(failed)?;
        body::check(&id, body).map_err(|why| damaged(format!("message {id:?}: {why}")))?;
        read += 1;
    }
    if read != counted.messages {
        return Err(damaged(format!("it has {read} messages, and its index {}", counted.messages)));
    }
    Ok(counted)
}
