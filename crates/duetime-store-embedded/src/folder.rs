//! The folder: its lock, its database file, its format.
//!
//! Keeps one process per folder. Connections made here all have the same settings.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use duetime_core::StoreError;
use rusqlite::{Connection, OpenFlags};
use tracing::warn;

use crate::fault::{DATABASE, FILE_MODE, Fault, WRITABLE, damaged};

const LOCK: &str = "duetime.lock";
/// Messages are nobody else's, and neither are locks on their files.
const FOLDER_MODE: u32 = 0o700;
/// What others may do in a folder, of its mode.
const OTHERS: u32 = 0o077;
/// How long a connection waits while another process holds the database.
pub const BUSY_MAX: Duration = Duration::from_secs(2);
/// SQLite's default, and that of all databases made here.
pub const PAGE_BYTES: u64 = 4096;
/// A log that grew beyond this is shortened when it begins anew.
pub const LOG_BYTES_MAX: i64 = 48 << 20;
/// "Duet" in ASCII: what `file` and SQLite see in the header.
const APPLICATION: i64 = 0x4475_6574;
/// The format this code reads and writes.
pub const FORMAT: i64 = 2;
/// Page cache of one connection.
const CACHE_KIB: i64 = 64 * 1024;

const SCHEMA: &str = "
    CREATE TABLE topic (name TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT, WITHOUT ROWID;
    -- Keys are never used twice, so what is left of a deleted topic is nobody's.
    CREATE TABLE shard (key INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, idx INTEGER NOT NULL,
        meta TEXT NOT NULL, UNIQUE (topic, idx)) STRICT;
    -- Shards of deleted topics that are not swept yet. Nothing else is ever swept: messages of a shard
    -- nobody knows mean damage, and are left for a rescue.
    CREATE TABLE gone (shard INTEGER PRIMARY KEY) STRICT;
    -- A dead letter has no score.
    CREATE TABLE message (key INTEGER PRIMARY KEY, shard INTEGER NOT NULL, id TEXT NOT NULL, score INTEGER,
        body BLOB NOT NULL) STRICT;
    CREATE UNIQUE INDEX message_by_id ON message (shard, id);
    CREATE INDEX message_by_score ON message (shard, score);
    CREATE TABLE dead (shard INTEGER NOT NULL, cursor INTEGER NOT NULL, id TEXT NOT NULL,
        attempts INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (shard, cursor)) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX dead_by_id ON dead (shard, id);
";

/// Format 2: shards have routing records of their own, and messages move between them.
const SCHEMA_2: &str = "
    CREATE TABLE fence (shard INTEGER PRIMARY KEY, routing TEXT NOT NULL) STRICT;
    INSERT INTO fence (shard, routing)
        SELECT s.key, json_extract(t.record, '$.routing') FROM shard s JOIN topic t ON t.name = s.topic;
    -- Without a nonce the outbox is empty; the number is that of its last batch.
    CREATE TABLE outbox (shard INTEGER PRIMARY KEY, number INTEGER NOT NULL, nonce INTEGER, dest INTEGER) STRICT;
    -- A dead letter has no score.
    CREATE TABLE frozen (shard INTEGER NOT NULL, id TEXT NOT NULL, score INTEGER, cursor INTEGER,
        attempts INTEGER, reason TEXT, body BLOB NOT NULL, PRIMARY KEY (shard, id)) STRICT, WITHOUT ROWID;
    CREATE TABLE moved (shard INTEGER NOT NULL, source INTEGER NOT NULL, number INTEGER NOT NULL,
        nonce INTEGER NOT NULL, PRIMARY KEY (shard, source)) STRICT, WITHOUT ROWID;
";

/// The number of the last life any topic had. It is no format of its own: a version that does not know it
/// makes topics whose lives have no number.
const LIVES: &str = "CREATE TABLE IF NOT EXISTS life (last INTEGER NOT NULL) STRICT;";
/// The number of the last transaction that touched shards of a topic that is deleted; shards have their own.
const TRANSACTIONS: &str = "CREATE TABLE IF NOT EXISTS deleted_transaction (last INTEGER NOT NULL) STRICT;";

/// Bulk plans. No format of its own either: a version that does not know them leaves them alone.
const PLANS: &str =
    "CREATE TABLE IF NOT EXISTS bulk_plan (id TEXT PRIMARY KEY, plan TEXT NOT NULL) STRICT, WITHOUT ROWID;";

/// Sinks that were put by the API. No format of its own either: for a version that does not know them there are none.
const SINKS: &str =
    "CREATE TABLE IF NOT EXISTS put_sink (id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT, WITHOUT ROWID;";

/// What became of messages that are gone. No format of its own either: what a version ends that does not know it is not
/// remembered.
const PAST: &str = "CREATE TABLE IF NOT EXISTS past (key INTEGER PRIMARY KEY, shard INTEGER NOT NULL,
        since INTEGER NOT NULL, at INTEGER NOT NULL, id TEXT NOT NULL, outcome BLOB NOT NULL) STRICT;
    CREATE UNIQUE INDEX IF NOT EXISTS past_by_id ON past (shard, id);
    CREATE INDEX IF NOT EXISTS past_by_age ON past (shard, key);";

/// When what was claimed and is not done was due, where its topic has a watermark. No format of its own either: a version
/// that does not know it makes no such topic.
const UNDONE: &str = "ALTER TABLE message ADD COLUMN undone INTEGER;";
const UNDONE_INDEX: &str =
    "CREATE INDEX IF NOT EXISTS message_undone ON message (shard, undone) WHERE undone IS NOT NULL;";

/// The lock on a folder that is used; the system releases it when the process ends, however.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
    /// The folder itself: it stays locked when somebody removes the file. Not the database, whose own locks
    /// would go with the first descriptor of it that is closed.
    folder: Option<File>,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing alone would not do while a process forked a moment ago still has its copy.
        let _ = self.file.unlock();
        if let Some(folder) = &self.folder {
            let _ = folder.unlock();
        }
    }
}

/// The number of the process that uses the folder, or `unknown`; `None`: nobody does.
pub fn user(folder: &Path) -> Option<String> {
    let mut file = File::open(folder.join(LOCK)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(holder(&mut file)),
        _ => None,
    }
}

/// What the holder of the lock wrote into its file.
fn holder(file: &mut File) -> String {
    let mut holder = String::new();
    // The number only helps; without it the refusal is the same.
    let _ = file.read_to_string(&mut holder);
    if holder.trim().is_empty() { "unknown".to_owned() } else { holder.trim().to_owned() }
}

/// Makes the folder, and those above it, where they are absent; the disk keeps the name of each that is made.
fn make(folder: &Path) -> std::io::Result<()> {
    let is_absent = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let absent: Vec<&Path> = folder.ancestors().take_while(is_absent).collect();
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    for made in absent.into_iter().rev() {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty());
        File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Makes the folder if it is absent and takes it for this process.
pub fn take(folder: &Path) -> Result<FolderLock, StoreError> {
    let unusable =
        |error: std::io::Error| StoreError::Setup(format!("{} cannot be used: {error}; {WRITABLE}", folder.display()));
    make(folder).map_err(unusable)?;
    keep_from_others(folder).map_err(unusable)?;
    let path = folder.join(LOCK);
    let itself = lock_itself(folder);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(&path);
    let mut file = file.map_err(unusable)?;
    let itself = match (file.try_lock(), itself) {
        (Ok(()), Ok(itself)) => itself,
        (Err(TryLockError::WouldBlock), _) | (_, Err(Used)) => {
            return Err(StoreError::Setup(format!(
                "{} is used by another duetime (process {}); stop it, or choose another folder with \
                 --store embedded:PATH",
                folder.display(),
                holder(&mut file)
            )));
        }
        (Err(TryLockError::Error(error)), _) => return Err(unusable(error)),
    };
    // On a full disk the number is left out; the lock counts, not the text.
    let _ = file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
    Ok(FolderLock { file, folder: itself })
}

/// Takes the files of the store from others; of the folder, which may have been made for more, it says so.
fn keep_from_others(folder: &Path) -> std::io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & OTHERS != 0 {
        warn!(
            folder = %folder.display(),
            mode = format!("{:03o}", mode & 0o777),
            "others may enter the store's folder and keep duetime from starting; run `chmod 700` on it"
        );
    }
    for name in [DATABASE, "duetime.db-wal", "duetime.db-shm", LOCK, crate::synced::NAME, crate::reserve::NAME] {
        let path = folder.join(name);
        // A link leads to a file of somebody else.
        let open = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && meta.mode() & OTHERS != 0);
        if open && let Err(error) = fs::set_permissions(&path, fs::Permissions::from_mode(FILE_MODE)) {
            warn!(file = %path.display(), %error, "others may read or lock a file of the store; run `chmod 600` on it");
        }
    }
    Ok(())
}

/// Another process has the folder.
struct Used;

/// Locks the folder itself, where the file system can: on some, only files that can be written are locked.
fn lock_itself(folder: &Path) -> Result<Option<File>, Used> {
    let Ok(itself) = File::open(folder) else { return Ok(None) };
    match itself.try_lock() {
        Ok(()) => Ok(Some(itself)),
        Err(TryLockError::WouldBlock) => Err(Used),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

fn connect(folder: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(folder.join(DATABASE), flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY_MAX)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// The one connection that writes; makes the tables in a new file. One that is there is not written to, so
/// that it can be opened on a full disk.
pub fn open_writer(folder: &Path) -> Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| Fault::Sql(error).into_store_error("open the store", folder);
    // SQLite gives the log and its index the mode of the database. The file is closed before SQLite locks it: closing
    // any descriptor of it ends the locks of the process, and another one would take itself for the last and remove the
    // log.
    let made = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(folder.join(DATABASE)).map(drop);
    if let Err(error) = made
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(StoreError::Setup(format!("{} cannot be written: {error}; {WRITABLE}", folder.display())));
    }
    let conn = connect(folder, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(failed);
    let (application, format) = (number("application_id")?, number("user_version")?);
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if (tables > 0 || application != 0) && application != APPLICATION {
        return Err(damaged("it is another program's database"));
    }
    if format > FORMAT {
        return Err(StoreError::Setup(format!(
            "{} has format {format} of a newer duetime, and this one reads up to {FORMAT}; \
             start the newer version, or choose another folder with --store embedded:PATH",
            folder.display()
        )));
    }
    conn.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX).map_err(failed)?;
    // A commit writes the log without waiting; the syncer waits, for many commits at once.
    conn.pragma_update(None, "synchronous", "normal").map_err(failed)?;
    // The store copies the log into the database itself, and sees the errors of that.
    conn.pragma_update(None, "wal_autocheckpoint", 0).map_err(failed)?;
    if tables == 0 {
        conn.execute_batch(&format!(
            "BEGIN; {SCHEMA} {SCHEMA_2} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}; COMMIT"
        ))
        .map_err(failed)?;
    } else if format < 2 {
        conn.execute_batch(&format!("BEGIN; {SCHEMA_2} PRAGMA user_version = {FORMAT}; COMMIT")).map_err(failed)?;
    }
    let known = "SELECT count(*) FROM pragma_table_info('message') WHERE name = 'undone'";
    if conn.query_row(known, [], |row| row.get::<_, i64>(0)).map_err(failed)? == 0 {
        conn.execute_batch(UNDONE).map_err(failed)?;
    }
    for table in [LIVES, TRANSACTIONS, PLANS, SINKS, PAST, UNDONE_INDEX] {
        conn.execute_batch(table).map_err(failed)?;
    }
    if fs::metadata(log_path(folder)).is_err() {
        // The log has to be there before the syncer opens it.
        conn.pragma_update(None, "user_version", FORMAT).map_err(failed)?;
    }
    Ok(conn)
}

/// One more connection that copies the log into the database.
pub fn open_checkpointer(folder: &Path) -> rusqlite::Result<Connection> {
    let conn = connect(folder, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "synchronous", "normal")?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(conn)
}

/// A copy of a database, read as it is: without a log, and without making any file beside it.
pub fn open_copy(file: &Path) -> rusqlite::Result<Connection> {
    let escaped = file.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let slashes = if file.is_absolute() { "//" } else { "" };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(format!("file:{slashes}{escaped}?immutable=1"), flags)
}

/// The write-ahead log.
pub fn log_path(folder: &Path) -> PathBuf {
    folder.join(format!("{DATABASE}-wal"))
}

/// One more connection that only reads.
pub fn open_reader(folder: &Path) -> rusqlite::Result<Connection> {
    connect(folder, OpenFlags::SQLITE_OPEN_READ_ONLY)
}
