//! Space kept back, so that on a full disk messages can still be delivered and cancelled.
//!
//! The file is given up when a claim, a settlement or a cancel finds no space. New messages are
//! refused from then on, until it can be made again or as much has become free in the database.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::Instant;

use crate::fault::FILE_MODE;

pub const NAME: &str = "duetime.reserve";
/// Bytes kept back: the log of about 100,000 settlements.
const BYTES: usize = 16 << 20;
const STEP: usize = 1 << 20;
/// How long to wait before trying to make it again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Space kept back, so that on a full disk messages can still be delivered and cancelled.
#[derive(Debug)]
pub struct DiskReserve {
    path: PathBuf,
    there: bool,
    /// The database has as much free space inside.
    room: bool,
    tried: Option<Instant>,
}

impl DiskReserve {
    /// The reserve in `folder`, as far as there is space. `spent`: it had to be given up a moment ago.
    pub fn new(folder: &Path, spent: bool) -> Self {
        let mut reserve = Self { path: folder.join(NAME), there: false, room: false, tried: None };
        if spent {
            reserve.tried = Some(Instant::now());
        } else {
            reserve.refill();
        }
        reserve
    }

    /// Gives the space in `folder` up before the store is open; false: there was none.
    pub fn release_in(folder: &Path) -> bool {
        fs::remove_file(folder.join(NAME)).is_ok()
    }

    /// Gives the space up; false: there was none left to give.
    pub fn release(&mut self) -> bool {
        self.tried = Some(Instant::now());
        self.room = false;
        std::mem::take(&mut self.there) && fs::remove_file(&self.path).is_ok()
    }

    /// Whether new messages may come in; tries to get the space back, not too often.
    pub fn accepts(&mut self, conn: &Connection) -> bool {
        if !self.there && self.tried.is_none_or(|tried| tried.elapsed() >= AGAIN_AFTER) {
            self.refill();
            self.room = Self::is_inside(conn);
        }
        self.there || self.room
    }

    /// Whether the database has as much free space inside.
    pub fn is_inside(conn: &Connection) -> bool {
        let sql = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size";
        let free = conn.query_row(sql, [], |row| row.get(0));
        // Not knowing is no reason to take messages in.
        free.is_ok_and(|free: i64| free >= BYTES as i64)
    }

    fn refill(&mut self) {
        self.tried = Some(Instant::now());
        self.there = self.fill().is_ok();
        if !self.there {
            // A half-filled reserve would only take space away.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn fill(&self) -> std::io::Result<()> {
        if fs::metadata(&self.path).is_ok_and(|meta| meta.len() == BYTES as u64) {
            return Ok(());
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&self.path)?;
        // Bytes other than zero, so that no file system saves them away.
        let step = vec![0x5a; STEP];
        for _ in 0..BYTES / STEP {
            file.write_all(&step)?;
        }
        file.sync_data()
    }
}
