//! What the disk no longer holds as it was written: found when the folder is opened or when a shard is worked
//! on, kept in memory, and shown to operators by `/readyz`, the log and a metric.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duetime_core::{MessageId, TopicName, some_of};
use duetime_metrics::{Meters, StoreIssue};
use parking_lot::Mutex;
use tracing::{error, info};

use crate::fault::{LOCKED, RESCUE};

/// Messages of one shard that are passed over one by one; a shard with more of them answers an error.
pub const PASSED_OVER_MAX: usize = 65_536;
/// Shards that are named in one sentence.
const NAMED_MAX: usize = 10;

/// What of one shard cannot be read or changed. All copies of a shard's state share it: a rollback does not
/// undo it.
#[derive(Debug, Default)]
pub struct ShardDamage {
    found: AtomicBool,
    inside: Mutex<PassedOver>,
}

/// Messages that are left alone, so that those behind them are not held up.
#[derive(Debug, Default)]
struct PassedOver {
    /// Rows, with their score where it is known.
    rows: BTreeMap<i64, i64>,
    ids: HashSet<MessageId>,
    /// Something was added since it was asked.
    grew: bool,
}

impl ShardDamage {
    /// Whether anything was found.
    pub fn is_found(&self) -> bool {
        self.found.load(Ordering::Acquire)
    }

    /// A statement on this shard met a damaged page; true: the first one.
    pub fn find(&self) -> bool {
        !self.found.swap(true, Ordering::AcqRel)
    }

    /// Leaves a row alone from now on.
    pub fn pass_over(&self, key: i64, score: i64) {
        let mut inside = self.inside.lock();
        if inside.rows.len() < PASSED_OVER_MAX {
            inside.grew |= inside.rows.insert(key, score).is_none();
        }
    }

    /// Leaves the message of a settlement alone from now on.
    pub fn pass_over_id(&self, id: &MessageId) {
        let mut inside = self.inside.lock();
        if inside.ids.len() < PASSED_OVER_MAX {
            inside.grew |= inside.ids.insert(id.clone());
        }
    }

    /// Whether it is left alone.
    pub fn passes(&self, key: i64) -> bool {
        self.inside.lock().rows.contains_key(&key)
    }

    /// Whether it is left alone.
    pub fn passes_id(&self, id: &MessageId) -> bool {
        self.is_found() && self.inside.lock().ids.contains(id)
    }

    /// Rows left alone, and those of them with a score of at most `to`.
    pub fn count(&self, to: i64) -> (usize, usize) {
        let inside = self.inside.lock();
        (inside.rows.len(), inside.rows.values().filter(|score| **score <= to).count())
    }

    /// Whether something was added since the last call: the same request may succeed now.
    pub fn grew(&self) -> bool {
        std::mem::take(&mut self.inside.lock().grew)
    }
}

#[derive(Debug, Default)]
struct FoundDamages {
    shards: BTreeMap<TopicName, BTreeSet<u32>>,
    /// Transactions that were on the disk and are not in the database.
    lost_transactions: i64,
    /// Why the log could not be copied into the database, as long as that is so.
    checkpoint: Option<String>,
    /// Why requests are refused for want of space, as long as that is so.
    full: Option<String>,
    /// Another process keeps the writer from writing.
    locked: bool,
}

/// Everything that was found.
#[derive(Debug)]
pub struct Damages {
    found: Mutex<FoundDamages>,
    meters: Arc<Meters>,
}

impl Damages {
    pub fn new(meters: Arc<Meters>) -> Self {
        Self { found: Mutex::default(), meters }
    }

    /// A shard has a damaged place.
    pub fn shard(&self, topic: &TopicName, index: u32, what: &str) {
        let mut found = self.found.lock();
        if found.shards.entry(topic.clone()).or_default().insert(index) {
            error!(%topic, shard = index, what, "a shard is damaged on the disk; the others are served. {RESCUE}");
        }
        self.count(&found);
    }

    /// A topic is gone, and its shards with it.
    pub fn forget(&self, topic: &TopicName) {
        let mut found = self.found.lock();
        found.shards.remove(topic);
        self.count(&found);
    }

    /// The database lacks transactions that were acknowledged.
    pub fn lost(&self, transactions: i64) {
        error!(
            transactions,
            "acknowledged transactions are missing: the log was damaged, or an older copy of the database was put in \
             its place. {RESCUE}"
        );
        let mut found = self.found.lock();
        found.lost_transactions = transactions;
        self.count(&found);
    }

    /// What came of copying the log into the database.
    pub fn checkpoint(&self, error: Option<String>) {
        let mut found = self.found.lock();
        self.meters.store_issue(StoreIssue::Checkpoint, usize::from(error.is_some()));
        if let Some(error) = &error
            && found.checkpoint.is_none()
        {
            error!(%error, "the log cannot be copied into the database, and grows");
        }
        found.checkpoint = error;
    }

    /// Requests are refused for want of space; `None`: no more.
    pub fn full(&self, why: Option<String>) {
        let mut found = self.found.lock();
        self.meters.store_issue(StoreIssue::DiskFull, usize::from(why.is_some()));
        match (&found.full, &why) {
            (None, Some(why)) => error!("{why}"),
            (Some(_), None) => info!("there is space for new messages again"),
            _ => {}
        }
        found.full = why;
    }

    /// Whether another process keeps the writer from writing.
    pub fn locked(&self, is_locked: bool) {
        let mut found = self.found.lock();
        if std::mem::replace(&mut found.locked, is_locked) == is_locked {
            return;
        }
        self.meters.store_issue(StoreIssue::Locked, usize::from(is_locked));
        if is_locked {
            error!("nothing can be written: {LOCKED}");
        } else {
            info!("the database can be written again");
        }
    }

    fn count(&self, found: &FoundDamages) {
        let shards: usize = found.shards.values().map(BTreeSet::len).sum();
        self.meters.store_issue(StoreIssue::Damage, shards + usize::from(found.lost_transactions > 0));
    }

    /// One sentence for each kind of damage, for `/readyz`.
    pub fn issues(&self) -> Vec<String> {
        let found = self.found.lock();
        let mut all = Vec::new();
        if found.lost_transactions > 0 {
            all.push(format!(
                "{} acknowledged transactions are missing: the log was damaged, or an older copy of the database was \
                 put in its place; {RESCUE}",
                found.lost_transactions
            ));
        }
        for (topic, shards) in found.shards.iter().take(NAMED_MAX) {
            all.push(format!(
                "shards of topic {topic} are damaged on the disk: {}; messages in damaged places are not \
                 delivered; {RESCUE}",
                some_of(shards, NAMED_MAX)
            ));
        }
        if let Some(error) = &found.checkpoint {
            all.push(format!("the log cannot be copied into the database, and grows: {error}"));
        }
        all.extend(found.full.clone());
        if found.locked {
            all.push(format!("nothing can be written: {LOCKED}"));
        }
        all
    }
}
