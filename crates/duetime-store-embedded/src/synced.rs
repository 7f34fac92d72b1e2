//! The number of the last transaction that is on the disk, in a file beside the database.
//!
//! SQLite takes a damaged place in its log for the log's end, and what comes behind is gone without a word.
//! The database knows the number of the last transaction it has; if this file knows a higher one, some are
//! missing. Written after each sync, and synced itself only where that sync needs it: it may be behind, and is never
//! ahead.

use std::fs::{File, OpenOptions};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use duetime_core::StoreError;
use nix::fcntl::OFlag;

use crate::fault::{FILE_MODE, is_no_space};

pub const NAME: &str = "duetime.synced";
/// The number and its checksum.
const LEN: usize = 12;

/// The number of the last transaction that is on the disk, in a file beside the database.
#[derive(Debug)]
pub struct SyncedNumber {
    path: PathBuf,
    /// `None`: there was no space for it yet.
    file: Option<File>,
}

fn sum(number: [u8; 8]) -> [u8; 4] {
    murmur3::murmur3_32(&mut Cursor::new(number), 0).expect("memory can be read").to_be_bytes()
}

impl SyncedNumber {
    /// Opens it in `folder`; with the number, 0 if there is none.
    ///
    /// # Errors
    ///
    /// It is there and cannot be used, so that nobody would notice a damaged log. A full disk is no error.
    pub fn open(folder: &Path) -> Result<(Self, i64), StoreError> {
        let path = folder.join(NAME);
        let mut file = match open(&path) {
            Err(error) if is_no_space(&error) => return Ok((Self { path, file: None }, 0)),
            opened => opened.map_err(|error| {
                StoreError::Setup(format!(
                    "{} cannot be used: {error}; put back the file that it was and let duetime read and write it, or \
                     remove it, and a damaged log is not noticed by this start",
                    path.display()
                ))
            })?,
        };
        let mut text = [0; LEN];
        let number = match file.read_exact(&mut text) {
            Ok(()) => <[u8; 8]>::try_from(&text[..8]).expect("eight bytes"),
            Err(_) => [0; 8],
        };
        let number = if sum(number) == text[8..] { i64::from_be_bytes(number) } else { 0 };
        Ok((Self { path, file: Some(file) }, number))
    }

    /// Notes that all transactions up to `number` are on the disk.
    pub fn write(&mut self, number: i64) {
        // An old number notices less, that is all.
        let _ = self.put(number);
    }

    /// The same, and waits until the disk has it.
    ///
    /// # Errors
    ///
    /// `StorageFull`: there is no space for it. Else the file system keeps nothing any more.
    pub fn write_through(&mut self, number: i64) -> io::Result<()> {
        self.put(number)?.sync_data()
    }

    fn put(&mut self, number: i64) -> io::Result<&File> {
        let is_removed = |file: &File| file.metadata().is_ok_and(|meta| meta.nlink() == 0);
        if self.file.as_ref().is_none_or(is_removed)
            && let Ok(file) = open(&self.path)
        {
            self.file = Some(file);
        }
        let file = self.file.as_mut().ok_or(io::ErrorKind::StorageFull)?;
        let mut text = number.to_be_bytes().to_vec();
        text.extend_from_slice(&sum(number.to_be_bytes()));
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&text)?;
        Ok(file)
    }

    #[cfg(test)]
    pub fn on(file: File) -> Self {
        Self { path: PathBuf::new(), file: Some(file) }
    }

    #[cfg(test)]
    pub fn absent() -> Self {
        Self { path: PathBuf::new(), file: None }
    }
}

/// Opens the file, which is made if it is absent. A link may lead to a file of somebody else, and a pipe never ends.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let file = options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_removed_is_made_again_and_one_that_cannot_be_used_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let (mut synced, number) = SyncedNumber::open(folder.path()).unwrap();
        assert_eq!(number, 0);
        synced.write(7);
        std::fs::remove_file(&path).unwrap();
        synced.write(8);
        assert_eq!(SyncedNumber::open(folder.path()).unwrap().1, 8);
        // While it runs the file that it has goes on to be written.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(synced.write_through(9).is_ok());
        assert!(SyncedNumber::open(folder.path()).is_err());
        std::fs::remove_dir(&path).unwrap();
        let others = folder.path().join("others");
        std::fs::write(&others, "not for us").unwrap();
        std::os::unix::fs::symlink(&others, &path).unwrap();
        assert!(SyncedNumber::open(folder.path()).is_err());
        assert_eq!(std::fs::read_to_string(&others).unwrap(), "not for us");
    }
}
