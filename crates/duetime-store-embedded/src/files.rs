//! The database and its log as files: their space on the disk, and whether they are still the ones in the folder.
//!
//! Upstream: the writer, which has space made before it commits; the syncer; the watch; a backup. A process that closes
//! any descriptor of a file releases all its POSIX locks on it, and SQLite's are such: these files are closed after the
//! connections, and nothing else opens the database by itself.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::fstatvfs;
use rusqlite::{Connection, TransactionState, ffi};

use crate::fault::{DATABASE, FILE_MODE, is_no_space};
use crate::folder::{PAGE_BYTES, log_path};

/// The files grow by so much at a time, where the disk has it.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes of the log that stay its own on a full disk: the largest transaction of one request fits.
const LOG_BYTES_KEPT: u64 = 16 << 20;

/// One file, open for as long as the store.
#[derive(Debug)]
pub struct StoreFile {
    path: PathBuf,
    file: File,
}

/// The database and its log.
#[derive(Debug)]
pub struct StoreFiles {
    pub database: StoreFile,
    pub log: StoreFile,
}

impl StoreFiles {
    /// Opens the files of a database that is open, with their names safe on the disk.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let database = StoreFile::open(folder.join(DATABASE))?;
        database.lock()?;
        let log = StoreFile::open(log_path(folder))?;
        log.file.sync_all()?;
        File::open(folder)?.sync_all()?;
        Ok(Self { database, log })
    }

    /// Has the disk give the database space for all its pages and so many bytes more.
    pub fn hold_pages(&self, conn: &Connection, more: u64) -> rusqlite::Result<()> {
        let pages: i64 = conn.prepare_cached("PRAGMA page_count")?.query_row([], |row| row.get(0))?;
        self.database.hold(pages.unsigned_abs() * PAGE_BYTES + more).map_err(|error| {
            let code = if is_no_space(&error) { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR };
            rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(format!("the database cannot grow: {error}")))
        })
    }

    /// Commits, once the database file has the space of all its pages: only so can the log always be copied into it.
    pub fn commit(&self, conn: &Connection) -> rusqlite::Result<()> {
        if conn.transaction_state(None::<&str>)? == TransactionState::Write {
            self.hold_pages(conn, 0)?;
        }
        conn.execute_batch("COMMIT")
    }

    /// Makes space for the pages of the log that an earlier process left; false: there is none.
    pub fn make_space(&self, conn: &Connection) -> bool {
        // Some file systems ask for as much free space as the file has, where all of it has its space already.
        let _ = self.database.fill();
        self.hold_pages(conn, 0).is_ok()
    }

    /// Has the disk keep some space for the log. `shares`: half of what there is, for the database has to grow too.
    pub fn keep_log(&self, shares: bool) {
        // Without it a full disk makes the reserve serve the log too.
        let _ = self.log.len().and_then(|len| {
            let free = free_bytes(&self.log.file)?;
            self.log.hold(LOG_BYTES_KEPT.min(len + if shares { free / 2 } else { free }))
        });
    }

    /// What is no longer in the folder, or not as it was opened.
    pub fn displaced(&self) -> Option<String> {
        [&self.database, &self.log].into_iter().find_map(StoreFile::displaced)
    }
}

impl Drop for StoreFile {
    fn drop(&mut self) {
        // Closing alone would not do while a process forked a moment ago still has its copy.
        let _ = self.file.unlock();
    }
}

impl StoreFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).mode(FILE_MODE).open(&path)?;
        Ok(Self { path, file })
    }

    /// Locks the file itself: another folder may have a hard link of it. SQLite's locks are of another kind, which the
    /// lock of a whole file leaves alone on Linux only.
    fn lock(&self) -> io::Result<()> {
        if cfg!(target_os = "linux") {
            match self.file.try_lock() {
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::ResourceBusy.into()),
                // Some file systems lock no files.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
        }
        Ok(())
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Has the disk give the file space for so many bytes, so that writing them cannot fail for want of it.
    pub fn hold(&self, bytes: u64) -> io::Result<()> {
        let len = self.len()?;
        if len >= bytes {
            return Ok(());
        }
        let more = bytes - len;
        allocate(&self.file, len, more.next_multiple_of(STEP_BYTES)).or_else(|_| allocate(&self.file, len, more))
    }

    /// The same for what it has already: a page that was never written may have no space yet.
    pub fn fill(&self) -> io::Result<()> {
        match self.len()? {
            0 => Ok(()),
            len => allocate(&self.file, 0, len),
        }
    }

    fn displaced(&self) -> Option<String> {
        let shown = self.path.display();
        let (open, there) = (self.file.metadata(), fs::metadata(&self.path));
        match (open, there) {
            (Ok(open), Ok(there)) if (open.dev(), open.ino()) == (there.dev(), there.ino()) => None,
            (Ok(_), Ok(_)) => Some(format!("another file has the place of {shown}")),
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => Some(format!("{shown} was removed")),
            // A disk that does not answer is noticed by who writes to it.
            _ => None,
        }
    }
}

/// `fallocate(2)` never shortens a file and never changes what is in it.
#[cfg(target_os = "linux")]
fn allocate(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::fcntl::{FallocateFlags, fallocate};

    let offset = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
    loop {
        match fallocate(file, FallocateFlags::empty(), offset(from)?, offset(bytes)?) {
            Err(Errno::EINTR) => {}
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return free(file, bytes),
            done => return Ok(done?),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(file: &File, _from: u64, bytes: u64) -> io::Result<()> {
    free(file, bytes)
}

/// Where the file system keeps no space for a file: whether it has it at present.
fn free(file: &File, bytes: u64) -> io::Result<()> {
    if free_bytes(file)? < bytes {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

fn free_bytes(file: &File) -> io::Result<u64> {
    let disk = fstatvfs(file)?;
    Ok(disk.blocks_available() * disk.fragment_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path) -> StoreFile {
        let path = folder.join("file");
        fs::write(&path, [7; 100]).unwrap();
        StoreFile::open(path).unwrap()
    }

    #[test]
    fn a_file_that_holds_space_keeps_what_is_in_it_and_is_never_shortened() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        file.hold(50).unwrap();
        assert_eq!(file.len().unwrap(), 100);
        file.hold(3 << 20).unwrap();
        file.hold(1 << 20).unwrap();
        file.fill().unwrap();
        assert!(file.len().unwrap() >= 3 << 20);
        let blocks = fs::metadata(&file.path).unwrap().blocks();
        assert!(blocks * 512 >= 3 << 20, "the disk has given it the space: {blocks}");
        assert_eq!(fs::read(&file.path).unwrap()[..101], [[7; 100].as_slice(), &[0]].concat());
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        assert_eq!(file.displaced(), None);
        fs::rename(&file.path, folder.path().join("elsewhere")).unwrap();
        assert!(file.displaced().unwrap().contains("was removed"));
        fs::write(&file.path, [7; 100]).unwrap();
        assert!(file.displaced().unwrap().contains("another file"));
    }
}
