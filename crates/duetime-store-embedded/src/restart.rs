//! Runs the writer, and restarts it after a panic: with a new connection, from what is on the disk.
//!
//! While it is down, and for good after too many panics, the store is not ready and says why. Requests of
//! the transaction that panicked are answered as interrupted; whether they were done is unknown.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::StoreError;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::damage::Damages;
use crate::fault::Fault;
use crate::folder;
use crate::job::Job;
use crate::load::{self, Loaded};
use crate::write_context::WriteContext;
use crate::writer::Writer;

/// A writer that panics more often than this within [`PANICS_WITHIN`] is not started again.
const PANICS_MAX: usize = 3;
const PANICS_WITHIN: Duration = Duration::from_secs(60);

/// Whether the writer runs; why not.
#[derive(Clone, Debug, Default)]
pub struct Writing(Arc<Mutex<Option<String>>>);

impl Writing {
    /// Refuses while it does not.
    pub fn check(&self, doing: &'static str) -> Result<(), StoreError> {
        match &*self.0.lock() {
            Some(why) => Err(StoreError::Unavailable { doing, source: why.clone().into() }),
            None => Ok(()),
        }
    }

    fn is_down(&self, why: String) {
        *self.0.lock() = Some(why);
    }
}

/// Of a request whose transaction did not come to its end.
pub fn interrupted(doing: &'static str) -> StoreError {
    StoreError::Unavailable { doing, source: "its writer failed in the middle of it".into() }
}

/// The writer's connection, with what is there.
pub fn open_tables(folder: &Path, synced: i64, damages: &Damages) -> Result<(Connection, Loaded), StoreError> {
    let conn = folder::open_writer(folder)?;
    let loaded = load::load(&conn, synced, damages);
    let loaded = loaded.map_err(|fault: Fault| fault.into_store_error("open the store", folder))?;
    Ok((conn, loaded))
}

/// Runs until every sender of requests is gone, or the writer cannot be started again.
pub fn run(mut writer: Writer, mut inbox: mpsc::Receiver<Box<dyn Job>>, writing: &Writing) {
    let mut panics: Vec<Instant> = Vec::new();
    while catch_unwind(AssertUnwindSafe(|| writer.run(&mut inbox))).is_err() {
        error!("the writer of the store panicked; the line of the panic has more, report it");
        writing.is_down("its writer failed and is started again".to_owned());
        panics.retain(|at| at.elapsed() < PANICS_WITHIN);
        panics.push(Instant::now());
        let again =
            if panics.len() > PANICS_MAX { Err("it fails again and again".to_owned()) } else { renew(&mut writer) };
        if let Err(why) = again {
            error!(%why, "the writer is not started again, nothing is taken any more");
            writing.is_down(format!("its writer failed and cannot go on: {why}; start duetime again"));
            break;
        }
        warn!("the writer of the store was started again from what is on the disk");
        *writing.0.lock() = None;
    }
    // Those who wait are notified at once.
    inbox.close();
    while inbox.try_recv().is_ok() {}
}

/// Gives the writer what is on the disk, instead of what it had in memory.
fn renew(writer: &mut Writer) -> Result<(), String> {
    writer.ctx.undo();
    let (directory, damages) = (writer.ctx.directory.clone(), writer.ctx.damages.clone());
    let folder = writer.ctx.folder.clone();
    let (mut conn, loaded) = open_tables(&folder, 0, &damages).map_err(|error| error.to_string())?;
    writer.checkpoints.follow(&mut conn).map_err(|error| error.to_string())?;
    let files = writer.ctx.files.clone();
    writer.ctx = WriteContext::new(conn, files, folder, loaded, directory, damages);
    Ok(())
}
