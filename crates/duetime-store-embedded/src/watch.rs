//! Looks once a second whether the files in the folder are those that are open, and has the writer look around.
//!
//! Upstream: the store, which starts it on a thread of its own. A database that was removed or replaced under the node
//! takes what is written all the same, and none of it is there after the next start: nothing more is promised then.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::error;

use crate::files::StoreFiles;
use crate::job::{Job, Nudge};
use crate::syncer::Broken;

const EVERY: Duration = Duration::from_secs(1);

/// Runs until the other end of `ended` is dropped.
pub fn run(files: &Arc<StoreFiles>, writer: &mpsc::WeakSender<Box<dyn Job>>, broken: &Broken, ended: &Receiver<()>) {
    while matches!(ended.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
        look(files, broken);
        // A writer with requests waiting looks around anyway.
        if let Some(writer) = writer.upgrade() {
            let _ = writer.try_send(Box::new(Nudge));
        }
    }
}

/// Ends all promises when a file is not in its place.
pub fn look(files: &StoreFiles, broken: &Broken) {
    if broken.error().is_none()
        && let Some(what) = files.displaced()
    {
        let why = format!(
            "{what} while duetime used it: nothing more is accepted, and what was acknowledged in the last second may \
             be lost; stop duetime, put the files back, then start it again"
        );
        error!("{why}");
        broken.set(&why);
    }
}
