//! A copy of a whole store, made while it serves.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::store_error::StoreError;

/// A copy that has begun: the store as it was at one moment.
#[derive(Debug)]
pub struct Backup {
    /// Its length.
    pub bytes: u64,
    /// Messages in it, dead letters too.
    pub messages: u64,
    /// Topics in it.
    pub topics: u64,
    /// The copy, in order. It is whole once it has brought `bytes`; whoever drops this ends it.
    pub chunks: mpsc::Receiver<Result<Bytes, StoreError>>,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// This store is copied by other means, which the text names.
    #[error("{0}")]
    Elsewhere(&'static str),
    /// One is being made.
    #[error("a backup is being made; wait until it has ended, then begin another")]
    Running,
    /// The store could not begin one.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes copies of a whole store while it serves. The API asks.
#[async_trait]
pub trait BackupStore: Send + Sync + fmt::Debug + 'static {
    /// Begins a copy of all that is committed at present. One at a time.
    ///
    /// # Errors
    ///
    /// [`BackupError::Elsewhere`]: it is copied by other means.
    async fn backup(&self) -> Result<Backup, BackupError>;
}
