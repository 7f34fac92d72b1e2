//! What SQLite answers, as a [`StoreError`] that says what to do.

use std::io;
use std::path::Path;

use duetime_core::StoreError;
use rusqlite::{ErrorCode, ffi};

/// The database file; SQLite keeps `-wal` and `-shm` beside it.
pub const DATABASE: &str = "duetime.db";
/// The mode of each file of the store.
pub const FILE_MODE: u32 = 0o600;

/// Whether a file cannot grow: the disk, a quota or a limit of its size.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Why a request could not be carried out.
#[derive(Debug)]
pub enum Fault {
    /// Refused by the store's rules, before anything was written.
    Refused(StoreError),
    /// The database did not do it; whatever its transaction wrote must be rolled back.
    Sql(rusqlite::Error),
    /// What a row holds is not what was written there.
    Unreadable(String),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl Fault {
    /// Data that is not on the disk as it was written: which, or what is wrong.
    pub fn damage(&self) -> Option<String> {
        match self {
            Self::Unreadable(what) => Some(what.clone()),
            Self::Sql(error) if is_corrupt(error) => Some(error.to_string()),
            Self::Refused(_) | Self::Sql(_) => None,
        }
    }

    /// What the caller learns about data in `folder`.
    pub fn into_store_error(self, doing: &'static str, folder: &Path) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Sql(error) => sql_error(&error, doing, folder),
            Self::Unreadable(what) => StoreError::Damaged(format!("{what} in {DATABASE}; {RESCUE}")),
        }
    }
}

/// Whether there is no space for what was asked.
///
/// A quota or a file size limit shows as a failed write, not as a full disk.
pub fn is_full(error: &rusqlite::Error) -> bool {
    let Some(known) = error.sqlite_error() else { return false };
    let grows = [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_TRUNCATE, ffi::SQLITE_IOERR_SHMSIZE];
    known.code == ErrorCode::DiskFull || grows.contains(&known.extended_code)
}

/// Whether a page, or a field of a row, does not hold what was written.
pub fn is_corrupt(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType, Utf8Error};
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt))
        || matches!(error, FromSqlConversionFailure(..) | InvalidColumnType(..) | Utf8Error(..))
}

/// Whether it is unknown what of a file is on the disk.
pub fn is_unsynced(error: &rusqlite::Error) -> bool {
    let unsynced = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC];
    error.sqlite_error().is_some_and(|known| unsynced.contains(&known.extended_code))
}

/// Whether another process holds the lock that was asked for.
pub fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// What is said while another process keeps the writer from writing.
pub const LOCKED: &str = "another process holds the database and writes to it; end it (`fuser duetime.db` in the \
                          store's folder shows who has it open)";

/// The text of a store without space for new messages; clients read it, so it names no folder.
pub const FULL: &str = "no space left for the store: new messages are refused, claims, acks and cancels go on in the \
                        space kept back for them; free some space on its disk";

/// The text of a store without any space.
fn no_space_text(doing: &str) -> String {
    format!(
        "no space left for the store to {doing}, and none that is kept back for claims, acks and cancels; free some \
         space on its disk"
    )
}

/// What a caller learns about an error of the database.
pub fn sql_error(error: &rusqlite::Error, doing: &'static str, folder: &Path) -> StoreError {
    match error.sqlite_error_code() {
        _ if is_full(error) => StoreError::Full(no_space_text(doing)),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            StoreError::Setup(format!("{} cannot be written: {error}; {}", folder.display(), WRITABLE))
        }
        _ if is_busy(error) => StoreError::Unavailable { doing, source: LOCKED.into() },
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::FileLockingProtocolFailed,
        ) => StoreError::Unavailable { doing, source: error.to_string().into() },
        // All else means that the file does not hold what was written: not even our own tables.
        _ => damaged(&error.to_string()),
    }
}

/// What to do about a folder that cannot be written.
pub const WRITABLE: &str = "give the folder to the user duetime runs as, or choose another with --store embedded:PATH";

/// What to do about damage.
pub const RESCUE: &str = "stop duetime, keep a copy of the folder, then restore a backup or save what can be read \
                          (docs/EMBEDDED.md, \"Damage\")";

/// A database that cannot be read as what it is; clients read the text, so it names no folder.
pub fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{DATABASE} in the store's folder cannot be read ({what}); {RESCUE}"))
}
