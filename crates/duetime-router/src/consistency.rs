//! Looks for topics that vanished from the catalogue and for shards that vanished from their servers.
//!
//! Upstream: the program, where nodes share a store. Downstream: `Store`, `ResizeStore`, the catalog's
//! issues. Finds and reports only: what is put right is an operator's decision.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::resize_store::Inspected;
use duetime_core::{Routing, StoreError, TopicRecord};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::route::Dispatcher;
use crate::store_rollback::go_back;
use crate::vanished::look_into_all;

/// How often topics that went away are looked into.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Every so many looks at topics, the shards are looked at too.
const SHARDS_EVERY: u32 = 10;

/// What is wrong with the place of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misplaced {
    /// The shard should be there and is not.
    Lost,
    /// So many messages of an earlier life of the topic are there.
    Occupied(u64),
    /// A shard of a later life, or of another change, is there, with so many messages: the catalogue is older than it.
    Later(u64),
}

/// Whether a shard's record shows that the catalogue's is not the latest one: of a later life, or of another change with
/// the same epoch.
fn is_of_other(shard: &Routing, routing: &Routing) -> bool {
    shard.life() > routing.life() || shard.is_rival(routing)
}

/// What the places of shards are, against what `routing` says. One that ids move into may be missing, unless it is
/// known to have been there.
fn misplaced(routing: &Routing, found: &[Option<Inspected>], is_lost: impl Fn(u32) -> bool) -> Vec<(u32, Misplaced)> {
    let mut wrong = Vec::new();
    for (index, place) in (0..).zip(found) {
        let older = place.as_ref().filter(|shard| shard.routing.life() < routing.life());
        if let Some(later) = place.as_ref().filter(|shard| is_of_other(&shard.routing, routing)) {
            wrong.push((index, Misplaced::Later(later.held)));
            continue;
        }
        if let Some(older) = older.filter(|older| older.held > 0) {
            wrong.push((index, Misplaced::Occupied(older.held)));
        } else if (place.is_none() || older.is_some()) && (!routing.may_lack(index) || is_lost(index)) {
            wrong.push((index, Misplaced::Lost));
        }
    }
    wrong
}

/// Shards with messages on their way to one that the topic does not have, and how many these are.
fn stranded(routing: &Routing, found: &[Option<Inspected>]) -> Vec<(u32, u64)> {
    let messages = |shard: &Inspected| {
        let outbox = shard.outbox.filter(|(_, to, _)| shard.routing.id() == routing.id() && *to >= routing.reach());
        outbox.map(|(_, _, messages)| messages)
    };
    (0..).zip(found).filter_map(|(index, shard)| Some((index, messages(shard.as_ref()?)?))).collect()
}

/// Looks for what is missing, and notes it.
#[derive(Clone)]
pub struct Reviewer {
    dispatcher: Arc<Dispatcher>,
}

impl Reviewer {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self { dispatcher }
    }

    /// Looks until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let rounds = async {
            let mut round = 0;
            loop {
                self.look_at_topics().await;
                if round == 0 {
                    self.look_at_shards().await;
                    if let Err(error) = self.dispatcher.context.topics.finish_deletions().await {
                        debug!(%error, "deletions that were interrupted cannot be finished at present");
                    }
                }
                round = (round + 1) % SHARDS_EVERY;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Looks into topics that this node knew and that went away.
    pub async fn look_at_topics(&self) {
        let issues = self.dispatcher.catalog.issues();
        for (topic, error) in look_into_all(&*self.dispatcher.context.topics, &self.dispatcher.catalog).await {
            debug!(%topic, %error, "cannot be looked into at present");
        }
        self.look_at_older().await;
        self.dispatcher.context.meters.topic_issues("vanished", issues.count_vanished());
        self.dispatcher.context.meters.topic_issues("unreadable", issues.count_unreadable());
    }

    /// Looks at topics of which the catalogue has an older record than this node knows.
    async fn look_at_older(&self) {
        let Dispatcher { catalog, context, reports, .. } = &*self.dispatcher;
        let known = |topic| catalog.get(&topic).map(|known| (topic, known.routing.epoch));
        let seen: Vec<_> = catalog.all_older().into_iter().filter_map(known).collect();
        // A change may have been made while the catalogue was read.
        if seen.is_empty() || catalog.refresh().await.is_err() {
            return;
        }
        for (topic, epoch) in seen {
            if let Err(error) = go_back(&*context.shards, catalog, reports, &topic, epoch).await {
                debug!(%topic, %error, "the catalogue has an older record than is known");
            }
        }
    }

    /// Looks at the places of all shards.
    pub async fn look_at_shards(&self) {
        for record in self.dispatcher.catalog.all().values() {
            if let Err(error) = self.look_for_stranded(record).await {
                debug!(topic = %record.name, %error, "messages that are on their way cannot be looked at at present");
            }
            match self.misplaced(record).await {
                Ok(wrong) => {
                    let lost = wrong.iter().filter(|(_, what)| *what == Misplaced::Lost).map(|(index, _)| *index);
                    let (topic, lost) = (&record.name, lost.collect::<BTreeSet<u32>>());
                    let later = wrong.iter().filter_map(|(_, what)| match what {
                        Misplaced::Later(messages) => Some(*messages),
                        Misplaced::Lost | Misplaced::Occupied(_) => None,
                    });
                    let later = later.reduce(|sum, more| sum + more);
                    if later.is_some() || self.dispatcher.catalog.older(topic).is_none() {
                        self.dispatcher.reports.later(topic, later);
                    }
                    // Deleted or changed meanwhile: the next look has the present record.
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
                Err(error) => debug!(topic = %record.name, %error, "shards cannot be looked at at present"),
            }
        }
    }

    /// Messages on their way to a shard that the topic does not have: nobody finds them until they are home.
    async fn look_for_stranded(&self, record: &TopicRecord) -> Result<(), StoreError> {
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

    /// Places of the topic's shards that are not as its record says, as they are at present.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn misplaced(&self, record: &TopicRecord) -> Result<Vec<(u32, Misplaced)>, StoreError> {
        let found = self.dispatcher.context.shards.inspect(&record.name, 0..record.routing.reach()).await?;
        let is_lost = |index| self.dispatcher.catalog.issues().is_lost(&record.name, index);
        let wrong = misplaced(&record.routing, &found, is_lost);
        if wrong.is_empty() {
            return Ok(wrong);
        }
        // What was looked at may be the shards of a topic that is being deleted.
        self.dispatcher.catalog.refresh().await?;
        let same = self.dispatcher.catalog.get(&record.name).is_some_and(|present| present.routing == record.routing);
        Ok(if same { wrong } else { Vec::new() })
    }
}
