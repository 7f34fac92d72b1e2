//! A thread that runs beside the writer and ends with the store.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tracing::error;

/// A thread that ends when this is dropped.
#[derive(Debug)]
pub struct BackgroundThread {
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundThread {
    /// Runs `work` until it ends, or the other end of what it is given is dropped.
    pub fn spawn(name: &str, work: impl FnOnce(&Receiver<()>) + Send + 'static) -> std::io::Result<Self> {
        let (end, ended) = sync_channel(1);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&ended))?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("a thread of the store panicked");
        }
    }
}
