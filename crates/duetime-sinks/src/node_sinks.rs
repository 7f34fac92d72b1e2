//! The sinks of a node: those of its file, which stay as they are, and those that were put by the API, which come, change
//! and go while it runs.
//!
//! Upstream: the program, which binds topics through it; the router, which brings what the store has. A sink that is put
//! again is a new connection: what the old one has in flight ends through that one, which goes with its last topic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{
    BindError, Clock, NamedSink, NamedSinks, Namespace, Sink, SinkBinder, SinkRecord, SinkRef, SinkRefusal, TopicName,
};
use parking_lot::RwLock;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::by_api::{SinksByApiConfig, kind_of};
use crate::registry::{SinkConfig, SinkRegistry, make};
use crate::remedy::with_remedy;
use crate::target::Target;

/// Longest time in which a sink is tried before it is put.
const TRIED_WITHIN: Duration = Duration::from_secs(10);
/// Sinks that are tried at once.
const TRIES_MAX: usize = 4;

/// Longest that a look at the store waits for a sink to be made ready: the files that it names may be slow to read.
const MADE_WITHIN: Duration = Duration::from_secs(2);
/// What is said of one that takes longer.
const SLOW: &str = "the files that it names are slow to read; it is used as soon as they are read";
/// Why one is not put whose files take still longer.
const UNREAD: &str = "the files that it names were not read in time; see to the folder of secrets, and put it again";
/// What is said of one that cannot be made ready.
const PANICKED: &str = "it panicked when it was made ready";

/// What is said of a sink that the file has too.
const OF_FILE_TOO: &str = "the file of this node has a sink of this name, which is used instead of the one that was put; \
                           give one of them another name";

/// A sink that was put, as this node has it.
#[derive(Debug)]
struct PutSink {
    /// Its record as the store has it.
    text: String,
    /// `None`: the record cannot be read.
    record: Option<SinkRecord>,
    /// Another for each change.
    generation: u64,
    /// Its connection, or why this node has none.
    made: Result<Arc<dyn Target>, String>,
}

impl PutSink {
    /// One that this node cannot use.
    fn unusable(text: String, generation: u64, fault: &str) -> Self {
        let record = serde_json::from_str(&text).ok();
        Self { text, record, generation, made: Err(fault.to_owned()) }
    }
}

/// What is being made ready, by name and text, and since when.
type UnderWay = BTreeMap<(String, String), (Instant, JoinHandle<PutSink>)>;

/// What sinks are made with.
#[derive(Debug)]
struct Making {
    rules: SinksByApiConfig,
    clock: Arc<dyn Clock>,
    namespace: Namespace,
}

impl Making {
    fn target(&self, config: &Map<String, Value>) -> Result<Arc<dyn Target>, SinkRefusal> {
        make(&self.rules.read(config)?, &self.clock, &self.namespace)
            .map_err(|fault| SinkRefusal::Invalid { field: fault.key.map(str::to_owned), detail: fault.text })
    }

    fn put_sink(&self, text: String, generation: u64) -> PutSink {
        let record = serde_json::from_str::<SinkRecord>(&text);
        let made = match &record {
            Err(error) => Err(format!("its record cannot be read: {error}; put it again")),
            Ok(record) => self.target(&record.config).map_err(|refusal| match refusal {
                SinkRefusal::Invalid { detail, .. } | SinkRefusal::Unusable(detail) => detail,
            }),
        };
        PutSink { text, record: record.ok(), generation, made }
    }
}

/// What was put, and how often anything of it changed.
#[derive(Debug, Default)]
struct PutSinks {
    all: BTreeMap<String, PutSink>,
    changes: u64,
}

/// The sinks of a node.
#[derive(Debug)]
pub struct NodeSinks {
    file: Arc<SinkRegistry>,
    kinds: BTreeMap<String, &'static str>,
    making: Arc<Making>,
    put: RwLock<PutSinks>,
    under_way: Mutex<UnderWay>,
    tries: Semaphore,
}

impl NodeSinks {
    /// Checks every sink of the file; opens no connection. What was put comes with [`NamedSinks::take_in`].
    ///
    /// # Errors
    ///
    /// As [`SinkRegistry::new`].
    pub fn new(
        configs: BTreeMap<String, SinkConfig>,
        rules: SinksByApiConfig,
        clock: Arc<dyn Clock>,
        namespace: &Namespace,
    ) -> Result<Arc<Self>, String> {
        let kinds = configs.iter().map(|(name, config)| (name.clone(), config.kind())).collect();
        let file = SinkRegistry::new(configs, clock.clone(), namespace)?;
        let making = Arc::new(Making { rules, clock, namespace: namespace.clone() });
        let (put, under_way, tries) = (RwLock::default(), Mutex::default(), Semaphore::new(TRIES_MAX));
        Ok(Arc::new(Self { file, kinds, making, put, under_way, tries }))
    }

    /// Those of `records` that are not ready as they are there, each as another generation.
    fn to_make(&self, records: &BTreeMap<String, String>) -> Vec<(String, String, u64)> {
        let (mut put, mut to_make) = (self.put.write(), Vec::new());
        for (name, text) in records {
            let is_ready = put.all.get(name).is_some_and(|known| known.text == *text && known.made.is_ok());
            if !is_ready {
                put.changes += 1;
                to_make.push((name.clone(), text.clone(), put.changes));
            }
        }
        to_make
    }

    /// Makes sinks ready, each on a thread where slow files hold up nothing else. One that takes longer than
    /// [`MADE_WITHIN`] cannot be used until a later look finds it ready.
    async fn made(&self, records: &BTreeMap<String, String>) -> Vec<(String, PutSink)> {
        let mut under_way = self.under_way.lock().await;
        under_way.retain(|(name, text), (_, making)| records.get(name) == Some(text) || !making.is_finished());
        let to_make = self.to_make(records);
        for (name, text, generation) in &to_make {
            under_way.entry((name.clone(), text.clone())).or_insert_with(|| {
                let (making, text, generation) = (self.making.clone(), text.clone(), *generation);
                (Instant::now(), tokio::task::spawn_blocking(move || making.put_sink(text, generation)))
            });
        }
        let mut made = Vec::with_capacity(to_make.len());
        for (name, text, generation) in to_make {
            let key = (name, text);
            let Some((since, making)) = under_way.get_mut(&key) else { continue };
            let done = timeout_at(*since + MADE_WITHIN, making).await;
            if done.is_ok() {
                under_way.remove(&key);
            }
            let (name, text) = key;
            let sink = match done {
                Ok(Ok(sink)) => sink,
                Ok(Err(_)) => PutSink::unusable(text, generation, PANICKED),
                Err(_) => PutSink::unusable(text, generation, SLOW),
            };
            made.push((name, sink));
        }
        made
    }
}

impl SinkBinder for NodeSinks {
    fn bind(&self, topic: &TopicName, sink: &SinkRef) -> Result<Arc<dyn Sink>, BindError> {
        if self.kinds.contains_key(&sink.name) {
            return self.file.bind(topic, sink);
        }
        let refused = |error: &str| BindError::Refused(format!("sink {:?}: {error}", sink.name));
        let made = self.put.read().all.get(&sink.name).map(|put| put.made.clone());
        match made {
            Some(Ok(target)) => target.bind(topic, &sink.settings).map_err(|error| refused(&error)),
            Some(Err(fault)) => Err(refused(&fault)),
            None => {
                let put: Vec<String> = self.put.read().all.keys().cloned().collect();
                let configured = self.kinds.keys().cloned().chain(put).collect();
                Err(BindError::UnknownSink { name: sink.name.clone(), configured })
            }
        }
    }

    fn generation(&self, name: &str) -> u64 {
        // That of the file stays as it is, whatever was put by its name.
        if self.kinds.contains_key(name) {
            return 0;
        }
        self.put.read().all.get(name).map_or(0, |put| put.generation)
    }
}

#[async_trait]
impl NamedSinks for NodeSinks {
    fn all(&self) -> Vec<NamedSink> {
        let of_file = self.kinds.iter().map(|(name, kind)| {
            let kind = Some((*kind).to_owned());
            (name.clone(), NamedSink { name: name.clone(), kind, record: None, is_of_file: true, fault: None })
        });
        let mut all: BTreeMap<String, NamedSink> = of_file.collect();
        for (name, put) in &self.put.read().all {
            if let Some(of_file) = all.get_mut(name) {
                of_file.fault = Some(OF_FILE_TOO.to_owned());
                continue;
            }
            let kind = put.record.as_ref().and_then(|record| kind_of(&record.config)).map(str::to_owned);
            let (record, fault) = (put.record.clone(), put.made.as_ref().err().cloned());
            all.insert(name.clone(), NamedSink { name: name.clone(), kind, record, is_of_file: false, fault });
        }
        all.into_values().collect()
    }

    fn takes_put(&self) -> bool {
        self.making.rules.enabled
    }

    async fn check(
        &self,
        config: &Map<String, Value>,
        topics: &[(TopicName, SinkRef)],
        tries: bool,
    ) -> Result<(), SinkRefusal> {
        let (making, config) = (self.making.clone(), config.clone());
        let made = timeout(TRIED_WITHIN, tokio::task::spawn_blocking(move || making.target(&config))).await;
        let made = made.map_err(|_| SinkRefusal::Invalid { field: None, detail: UNREAD.to_owned() })?;
        let target = made.map_err(|_| SinkRefusal::Unusable(PANICKED.to_owned()))??;
        if !tries {
            return Ok(());
        }
        for (topic, sink) in topics {
            let refused = |fault: String| {
                format!(
                    "the topic {:?} could not deliver through it: {fault}; put it under a new name, and give the topic \
                     that sink with settings that fit",
                    topic.as_str()
                )
            };
            let bound = target.clone().bind(topic, &sink.settings);
            bound.map_err(|fault| SinkRefusal::Unusable(refused(fault)))?;
        }
        let within = TRIED_WITHIN.as_secs();
        let Ok(_turn) = timeout(TRIED_WITHIN, self.tries.acquire()).await else {
            let busy = format!("it had no turn within {within} s, for others are being tried; put it again");
            return Err(SinkRefusal::Unusable(busy));
        };
        let silent = || format!("it did not answer within {within} s");
        let tried = timeout(TRIED_WITHIN, target.check()).await;
        tried.unwrap_or_else(|_| Err(silent())).map_err(|said| SinkRefusal::Unusable(with_remedy(said)))
    }

    async fn take_in(&self, records: &BTreeMap<String, String>) -> bool {
        let made = self.made(records).await;
        let mut put = self.put.write();
        let before = put.all.len();
        put.all.retain(|name, _| records.contains_key(name));
        let mut is_other = put.all.len() != before;
        for (name, new) in made {
            let known = put.all.get(&name).filter(|known| known.text == new.text);
            // What could not be made ready, and cannot now for the same reason, is as it was.
            if known.is_some_and(|known| known.made.as_ref().err() == new.made.as_ref().err()) {
                continue;
            }
            let version = new.record.as_ref().map_or(0, |record| record.version);
            match &new.made {
                Ok(_) => info!(sink = %name, version, "a sink that was put by the API is ready"),
                Err(fault) => warn!(
                    sink = %name, version, fault,
                    "a sink that was put by the API cannot be used at this node, messages of its topics wait"
                ),
            }
            if self.kinds.contains_key(&name) {
                warn!(sink = %name, "{OF_FILE_TOO}");
            }
            put.all.insert(name, new);
            is_other = true;
        }
        is_other
    }
}

#[cfg(test)]
mod tests;
