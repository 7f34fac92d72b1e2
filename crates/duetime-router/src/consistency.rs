//! Checks for topics that vanished from the catalog and for shards that vanished from their servers.
//!
//! Upstream: the program, where nodes share a store. Downstream: `Store`, `ResizeStore`, the catalog's
//! issues. Finds and reports only: an operator decides what is repaired.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::resize_store::Inspected;
use duetime_core::{Routing, StoreError, TopicRecord};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::calls::route::Dispatcher;
use crate::catalog::store_rollback::accept_rollback;
use crate::catalog::vanished::look_into_all;

/// How often topics are checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Every this many checks of the topics, the shards are checked too.
const SHARDS_EVERY: u32 = 10;

/// What is found under the keys of a shard instead of the shard of the topic's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardAnomaly {
    /// The shard should be there and is not.
    Lost,
    /// This many messages of an earlier incarnation of the topic are there.
    Occupied(u64),
    /// A shard of a newer incarnation, or of another change, with this many messages: the catalog is older than the shard.
    Later(u64),
}

/// True if a shard's record shows that the catalog's is not the latest one: it is of a newer incarnation, or of another
/// change with the same epoch.
fn is_of_other(shard: &Routing, routing: &Routing) -> bool {
    shard.life() > routing.life() || shard.is_rival(routing)
}

/// Compares the shards that were found with those of `routing`. A shard that ids move into may be missing, unless it is
/// known to have been there.
fn anomalies(
    routing: &Routing,
    found: &[Option<Inspected>],
    is_lost: impl Fn(u32) -> bool,
) -> Vec<(u32, ShardAnomaly)> {
    let mut wrong = Vec::new();
    for (index, shard) in (0..).zip(found) {
        let older = shard.as_ref().filter(|shard| shard.routing.life() < routing.life());
        if let Some(later) = shard.as_ref().filter(|shard| is_of_other(&shard.routing, routing)) {
            wrong.push((index, ShardAnomaly::Later(later.held)));
            continue;
        }
        if let Some(older) = older.filter(|older| older.held > 0) {
            wrong.push((index, ShardAnomaly::Occupied(older.held)));
        } else if (shard.is_none() || older.is_some()) && (!routing.may_lack(index) || is_lost(index)) {
            wrong.push((index, ShardAnomaly::Lost));
        }
    }
    wrong
}

/// Returns the shards with messages on their way to a shard that the topic does not have, and how many these are.
fn stranded(routing: &Routing, found: &[Option<Inspected>]) -> Vec<(u32, u64)> {
    let messages = |shard: &Inspected| {
        let outbox = shard.outbox.filter(|(_, to, _)| shard.routing.id() == routing.id() && *to >= routing.reach());
        outbox.map(|(_, _, messages)| messages)
    };
    (0..).zip(found).filter_map(|(index, shard)| Some((index, messages(shard.as_ref()?)?))).collect()
}

/// Checks that the topics and shards in the store are those of the catalog, and reports what is not.
#[derive(Clone)]
pub struct ConsistencyChecker {
    dispatcher: Arc<Dispatcher>,
}

impl ConsistencyChecker {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self { dispatcher }
    }

    /// Checks until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let rounds = async {
            let mut round = 0;
            loop {
                self.check_topics().await;
                if round == 0 {
                    self.check_shards().await;
                    if let Err(error) = self.dispatcher.context.topics.finish_deletions().await {
                        debug!(%error, "deletions that were interrupted cannot be finished at present");
                    }
                }
                round = (round + 1) % SHARDS_EVERY;
                tokio::time::sleep(CHECK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Checks topics that this node knew and that are not in the catalog any more.
    pub async fn check_topics(&self) {
        let issues = self.dispatcher.catalog.issues();
        for (topic, error) in look_into_all(&*self.dispatcher.context.topics, &self.dispatcher.catalog).await {
            debug!(%topic, %error, "cannot be checked at present");
        }
        self.check_older().await;
        self.dispatcher.context.meters.topic_issues("vanished", issues.count_vanished());
        self.dispatcher.context.meters.topic_issues("unreadable", issues.count_unreadable());
    }

    /// Checks topics of which the catalog has an older record than this node.
    async fn check_older(&self) {
        let Dispatcher { catalog, context, reports, .. } = &*self.dispatcher;
        let known = |topic| catalog.get(&topic).map(|known| (topic, known.routing.epoch));
        let seen: Vec<_> = catalog.all_older().into_iter().filter_map(known).collect();
        // A change may have been made while the catalog was read.
        if seen.is_empty() || catalog.refresh().await.is_err() {
            return;
        }
        for (topic, epoch) in seen {
            if let Err(error) = accept_rollback(&*context.shards, catalog, reports, &topic, epoch).await {
                debug!(%topic, %error, "the catalog has an older record than is known");
            }
        }
    }

    /// Checks all shards.
    pub async fn check_shards(&self) {
        for record in self.dispatcher.catalog.all().values() {
            if let Err(error) = self.check_stranded(record).await {
                debug!(topic = %record.name, %error, "messages that are on their way cannot be checked at present");
            }
            match self.anomalies(record).await {
                Ok(wrong) => {
                    let lost = wrong.iter().filter(|(_, what)| *what == ShardAnomaly::Lost).map(|(index, _)| *index);
                    let (topic, lost) = (&record.name, lost.collect::<BTreeSet<u32>>());
                    let later = wrong.iter().filter_map(|(_, what)| match what {
                        ShardAnomaly::Later(messages) => Some(*messages),
                        ShardAnomaly::Lost | ShardAnomaly::Occupied(_) => None,
                    });
                    let later = later.reduce(|sum, more| sum + more);
                    if later.is_some() || self.dispatcher.catalog.older(topic).is_none() {
                        self.dispatcher.reports.later(topic, later);
                    }
                    // Deleted or changed meanwhile: the next check has the current record.
                    if self.dispatcher.catalog.get(topic).is_some_and(|present| present.routing == record.routing)
                        && self.dispatcher.catalog.issues().lose(topic, lost.clone())
                    {
                        match lost.is_empty() {
                            true => info!(%topic, "all shards are there again"),
                            false => error!(%topic, ?lost, "shards are lost: their server came back without them"),
                        }
                    }
                    self.dispatcher
                        .context
                        .meters
                        .shards_lost(topic, self.dispatcher.catalog.issues().count_lost(topic));
                }
                Err(error) => debug!(topic = %record.name, %error, "shards cannot be checked at present"),
            }
        }
    }

    /// Brings home messages on their way to a shard that the topic does not have: until then no request finds them.
    async fn check_stranded(&self, record: &TopicRecord) -> Result<(), StoreError> {
        let Dispatcher { catalog, context, reports, .. } = &*self.dispatcher;
        let found = context.shards.inspect(&record.name, 0..record.max_shards_ever()).await?;
        let stranded = stranded(&record.routing, &found);
        reports.stranded(&record.name, stranded.iter().map(|(_, messages)| messages).sum());
        if catalog.get(&record.name).is_some_and(|present| present.routing == record.routing) {
            for (index, _) in stranded {
                context.mover.finish(&record.name, &record.routing, index).await?;
            }
        }
        Ok(())
    }

    /// Returns the shards of the topic that are not as its record says, as they are at present.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn anomalies(&self, record: &TopicRecord) -> Result<Vec<(u32, ShardAnomaly)>, StoreError> {
        let found = self.dispatcher.context.shards.inspect(&record.name, 0..record.routing.reach()).await?;
        let is_lost = |index| self.dispatcher.catalog.issues().is_lost(&record.name, index);
        let wrong = anomalies(&record.routing, &found, is_lost);
        if wrong.is_empty() {
            return Ok(wrong);
        }
        // The shards may be of a topic that is being deleted.
        self.dispatcher.catalog.refresh().await?;
        let same = self.dispatcher.catalog.get(&record.name).is_some_and(|present| present.routing == record.routing);
        Ok(if same { wrong } else { Vec::new() })
    }
}
