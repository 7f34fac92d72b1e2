//! The number of the last transaction that is on the disk, in a file beside the database.
//!
//! SQLite takes a damaged place in its log for the log's end, and what comes behind is gone without a word.
//! The database knows the number of the last transaction it has; if this file knows a higher one, some are
//! missing. Written after each sync, and synced itself only where that sync needs it: it may be behind, and is never
//! ahead.

use std::fs::{File, OpenOptions};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::fault::FILE_MODE;

pub const NAME: &str = "duetime.synced";
/// The number and its checksum.
const LEN: usize = 12;

/// The number of the last transaction that is on the disk, in a file beside the database.
#[derive(Debug)]
pub struct SyncedNumber(Option<File>);

fn sum(number: [u8; 8]) -> [u8; 4] {
    murmur3::murmur3_32(&mut Cursor::new(number), 0).expect("memory can be read").to_be_bytes()
}

impl SyncedNumber {
    /// Opens it in `folder`; with the number, 0 if there is none.
    pub fn open(folder: &Path) -> (Self, i64) {
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(folder.join(NAME));
        // Without it, damage of the log is not noticed; the store works all the same.
        let Ok(mut file) = open else { return (Self(None), 0) };
        let mut text = [0; LEN];
        let number = match file.read_exact(&mut text) {
            Ok(()) => <[u8; 8]>::try_from(&text[..8]).expect("eight bytes"),
            Err(_) => [0; 8],
        };
        let number = if sum(number) == text[8..] { i64::from_be_bytes(number) } else { 0 };
        (Self(Some(file)), number)
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
        let file = self.0.as_mut().ok_or(io::ErrorKind::StorageFull)?;
        let mut text = number.to_be_bytes().to_vec();
        text.extend_from_slice(&sum(number.to_be_bytes()));
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&text)?;
        Ok(file)
    }

    #[cfg(test)]
    pub fn on(file: File) -> Self {
        Self(Some(file))
    }
}
