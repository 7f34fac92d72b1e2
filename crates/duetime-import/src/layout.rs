//! What each kind of system says of its keys and entries.

use async_trait::async_trait;

use crate::item::Item;
use crate::options::SourceError;
use crate::reader::{Counted, Entry, Reader, Scanned};

/// One system's keys and entries.
#[async_trait]
pub(crate) trait Layout: Send + Sync {
    /// What is read.
    fn parts(&self) -> Vec<Scanned>;
    /// What is there and not read: what it is called, and where.
    fn left(&self) -> Vec<(&'static str, Counted, String)>;
    /// What `entries` of one part are, in their order.
    async fn items(&self, reader: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError>;
}
