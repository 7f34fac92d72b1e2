//! The sinks that were put by the API: read from the store with the topics, changed through it.
//!
//! Upstream: the HTTP API changes them, the catalog has them read again. Downstream: the store, and the sinks of this node,
//! which make them ready. A change is one comparison and swap of one record by its text.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duetime_core::{
    Clock, NamedSink, NamedSinks, RecordKind, RecordStore, SinkRecord, SinkRef, SinkRefusal, StoreError, TopicName,
};
use serde_json::{Map, Value};
use tracing::warn;

/// How often a change is made again because somebody else changed the sink in between.
const CONFLICTS_MAX: u32 = 16;

/// Why a sink was not put or deleted.
#[derive(Debug)]
pub enum PutSinkError {
    /// This node takes none.
    Off,
    /// It is of the node's file.
    OfFile,
    /// There is none of this name.
    Unknown,
    /// It is not the version that was asked for; the version that it is, 0: there is none.
    Changed(u64),
    /// It cannot be put as it is.
    Refused(SinkRefusal),
    /// The store's own answer.
    Store(StoreError),
}

impl From<StoreError> for PutSinkError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A sink that is to be put.
#[derive(Clone, Debug)]
pub struct SinkPut {
    /// As topics name it.
    pub name: String,
    /// Its settings, as a section of the file has them.
    pub config: Map<String, Value>,
    /// Only if it is this version; 0: only if there is none.
    pub if_version: Option<u64>,
    /// The topics that deliver through it, with what they say of it.
    pub topics: Vec<(TopicName, SinkRef)>,
    /// Whether it is tried before.
    pub tries: bool,
    /// Everything is checked, and nothing is written.
    pub dry_run: bool,
    /// The token that puts it.
    pub by: Option<String>,
}

/// The sinks that were put by the API.
#[derive(Debug)]
pub struct PutSinks {
    store: Arc<dyn RecordStore>,
    sinks: Arc<dyn NamedSinks>,
    clock: Arc<dyn Clock>,
    /// Whether the last look at the store failed, which is said once.
    failing: AtomicBool,
}

impl PutSinks {
    /// Those in `store`, which `sinks` makes ready.
    #[must_use]
    pub fn new(store: Arc<dyn RecordStore>, sinks: Arc<dyn NamedSinks>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { store, sinks, clock, failing: AtomicBool::default() })
    }

    /// All sinks of this node, those of its file too.
    #[must_use]
    pub fn all(&self) -> Vec<NamedSink> {
        self.sinks.all()
    }

    /// Whether this node takes sinks that are put.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.sinks.takes_put()
    }

    /// Reads them from the store; all that was put before the call is seen. Returns true if anything is other than
    /// before; without an answer they stay as they were. Nobody calls it twice at once: an older answer never follows a
    /// newer one.
    pub(crate) async fn refresh(&self) -> bool {
        if !self.is_on() {
            return false;
        }
        let records = self.store.records(RecordKind::Sink).await;
        let was_failing = self.failing.swap(records.is_err(), Ordering::Relaxed);
        match records {
            Ok(records) => self.sinks.take_in(&records.by_name).await,
            Err(error) => {
                if !was_failing {
                    warn!(%error, "sinks that were put by the API could not be read again, going on with those known");
                }
                false
            }
        }
    }

    fn check_name(&self, name: &str) -> Result<(), PutSinkError> {
        match self.sinks.all().iter().find(|sink| sink.name == name) {
            Some(sink) if sink.is_of_file => Err(PutSinkError::OfFile),
            _ if !self.is_on() => Err(PutSinkError::Off),
            _ => Ok(()),
        }
    }

    /// Puts a sink: its record as it was put, or would be, and whether there was none of that name. This node has it
    /// after its next look at the store, and somebody else may have changed it again by then.
    ///
    /// # Errors
    ///
    /// [`PutSinkError`]; [`StoreError::Conflict`] after several changes by others in between.
    pub async fn put(&self, put: &SinkPut) -> Result<(SinkRecord, bool), PutSinkError> {
        self.check_name(&put.name)?;
        self.sinks.check(&put.config, &put.topics, put.tries).await.map_err(PutSinkError::Refused)?;
        let new = |version: u64| {
            let (by, config) = (put.by.clone(), put.config.clone());
            Some(SinkRecord { version, changed_at_ms: self.clock.now().as_millis(), by, config })
        };
        let (was, record) = self.swap(&put.name, put.if_version, put.dry_run, new).await?;
        Ok((record.expect("one is put"), was.is_none()))
    }

    /// Deletes a sink that no topic needs, which the caller has seen to.
    ///
    /// # Errors
    ///
    /// As [`Self::put`].
    pub async fn delete(&self, name: &str, if_version: Option<u64>) -> Result<(), PutSinkError> {
        self.check_name(name)?;
        match self.swap(name, if_version, false, |_| None).await? {
            (Some(_), _) => Ok(()),
            (None, _) => Err(PutSinkError::Unknown),
        }
    }

    /// Swaps the record for `new`, made for the version after all that there were; what was there before, and is now.
    async fn swap(
        &self,
        name: &str,
        if_version: Option<u64>,
        dry_run: bool,
        new: impl Fn(u64) -> Option<SinkRecord>,
    ) -> Result<(Option<String>, Option<SinkRecord>), PutSinkError> {
        let mut tries = 0;
        loop {
            let mut records = self.store.records(RecordKind::Sink).await?;
            let (last, seen) = (records.last_version, records.by_name.remove(name));
            // One that cannot be read may be put again all the same.
            let version = |text: &String| RecordKind::Sink.version_of(text).unwrap_or(last.max(1));
            let present = seen.as_ref().map_or(0, version);
            if if_version.is_some_and(|wanted| wanted != present) {
                return Err(PutSinkError::Changed(present));
            }
            let new = new(last.max(present) + 1);
            if seen.is_none() && new.is_none() {
                return Ok((None, None));
            }
            let text = new.as_ref().map(|record| serde_json::to_string(record).expect("plain data"));
            if dry_run {
                RecordKind::Sink.check_length(text.as_deref())?;
                // What was seen is not among the records any more.
                if seen.is_none() && records.by_name.len() >= RecordKind::Sink.most() {
                    return Err(RecordKind::Sink.too_many().into());
                }
                return Ok((seen, new));
            }
            match self.store.swap_record(RecordKind::Sink, name, seen.as_deref(), text.as_deref()).await {
                Ok(()) => return Ok((seen, new)),
                Err(StoreError::Conflict) if tries < CONFLICTS_MAX => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
}
