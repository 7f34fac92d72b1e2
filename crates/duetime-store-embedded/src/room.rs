//! Whether there is space to copy the log into the database, before more comes into the log.
//!
//! What is in the log is copied later, and the database grows by it. On a disk that its own messages fill, that space
//! has to be kept: a log that cannot be copied does not begin anew, and then there is none for a claim or a cancel either.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use rusqlite::Connection;

use crate::fault::DATABASE;
use crate::folder::log_path;

/// The log may grow to so many bytes before it begins anew: what it lacks of that is not free for the database.
const LOG_BYTES_MAX: u64 = 48 << 20;
/// Space for pages of the tables and indexes that change whatever comes.
pub const MARGIN_BYTES: u64 = 2 << 20;
/// What a message takes beside its bytes, about: its rows, and theirs in the indexes.
const ITEM_BYTES: u64 = 512;

/// What a transaction of so many messages and bytes may add to the database, about.
pub fn weight(items: usize, bytes: usize) -> u64 {
    2 * (bytes as u64 + items as u64 * ITEM_BYTES)
}

/// Bytes.
#[derive(Debug)]
pub struct DiskSpace {
    /// By which the database file grows when the log is copied.
    pub growth: u64,
    /// Inside the database.
    inside: u64,
    /// On the disk, without what the log may still take.
    outside: u64,
}

/// What there is now.
pub fn space(conn: &Connection, folder: &Path) -> std::io::Result<DiskSpace> {
    let count = |name: &str| -> std::io::Result<u64> {
        let pages: i64 = conn.pragma_query_value(None, name, |row| row.get(0)).map_err(std::io::Error::other)?;
        Ok(u64::try_from(pages).unwrap_or(0))
    };
    let page = count("page_size")?;
    let file = fs::metadata(folder.join(DATABASE))?.len();
    let log = fs::metadata(log_path(folder)).map_or(0, |log| log.len());
    let disk = statvfs(folder)?;
    let free = disk.blocks_available() * disk.fragment_size();
    Ok(DiskSpace {
        growth: (count("page_count")? * page).saturating_sub(file),
        inside: count("freelist_count")? * page,
        outside: free.saturating_sub(LOG_BYTES_MAX.saturating_sub(log)),
    })
}

impl DiskSpace {
    /// Whether the log can be copied after a transaction of this weight too.
    pub fn suffices(&self, weight: u64, reserve: u64) -> bool {
        let more = (weight + MARGIN_BYTES).saturating_sub(self.inside);
        self.growth + more <= self.outside.saturating_sub(weight) + reserve
    }
}
