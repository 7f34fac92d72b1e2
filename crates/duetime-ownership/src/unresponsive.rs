//! Detects servers of the store that answer other nodes and not this one: their shards go to nodes that they answer.
//!
//! A store of one server is not asked: whether it answers at all is found out elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::contract::group_by_server;
use duetime_core::ownership::Demand;
use duetime_core::{RoutingId, ScheduleStore, ServerId, Shard};
use duetime_supervisor::{Policy, Supervisor};
use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

/// How often each server is asked about one of its shards.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A server that does not answer this many times in a row, while others do, is unresponsive.
const UNRESPONSIVE_AFTER: u32 = 3;
/// An unresponsive server that answers this many times in a row is not unresponsive any more.
const BACK_AFTER: u32 = 2;

/// Watches for servers that do not answer this node. Ends when dropped.
#[derive(Debug)]
pub(crate) struct UnresponsiveServers {
    servers: watch::Receiver<BTreeSet<ServerId>>,
    _stop: DropGuard,
}

impl UnresponsiveServers {
    pub(crate) fn watch(
        store: Arc<dyn ScheduleStore>,
        demand: watch::Receiver<Demand>,
        supervisor: &Supervisor,
    ) -> Self {
        let (reports, servers) = watch::channel(BTreeSet::new());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        supervisor.start("unresponsive servers", Policy::RestartOrEnd, &stop, move || {
            let watch = notice(store.clone(), demand.clone(), reports.clone());
            stopped.clone().run_until_cancelled_owned(watch).map(drop)
        });
        Self { servers, _stop: stop.drop_guard() }
    }

    /// Waits for a change and returns the unresponsive servers.
    pub(crate) async fn changed(&mut self) -> BTreeSet<ServerId> {
        if self.servers.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.now()
    }

    pub(crate) fn now(&mut self) -> BTreeSet<ServerId> {
        self.servers.borrow_and_update().clone()
    }
}

async fn notice(
    store: Arc<dyn ScheduleStore>,
    demand: watch::Receiver<Demand>,
    reports: watch::Sender<BTreeSet<ServerId>>,
) {
    let mut counts = Counts::default();
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let shards = named(&crate::flat(&demand.borrow().clone()));
        let answers = ask(&*store, &shards).await;
        reports.send_if_modified(|unresponsive| counts.record(&answers, unresponsive));
    }
}

/// Shards as they are named by who asks and acts on nothing: without an epoch.
pub(crate) fn named(all: &[crate::ShardName]) -> Vec<Shard> {
    all.iter().map(|(topic, index)| Shard::new(topic.clone(), *index, RoutingId::default())).collect()
}

/// Whether each server answers about one of its shards; nothing for the only one there is.
async fn ask(store: &dyn ScheduleStore, shards: &[Shard]) -> BTreeMap<ServerId, bool> {
    let servers = group_by_server(store, shards);
    if servers.len() < 2 {
        return BTreeMap::new();
    }
    let asked = servers.into_iter().map(|(server, at)| async move {
        let one = std::slice::from_ref(&shards[at[0]]);
        let answer = tokio::time::timeout(ANSWER_WITHIN, store.next_due(one)).await;
        (server, matches!(answer, Ok(Ok(_))))
    });
    join_all(asked).await.into_iter().collect()
}

#[derive(Debug, Default)]
struct Counts(BTreeMap<ServerId, u32>);

impl Counts {
    /// Counts answers that contradict the current state of their server. Returns true if a state changed.
    fn record(&mut self, answers: &BTreeMap<ServerId, bool>, unresponsive: &mut BTreeSet<ServerId>) -> bool {
        let before = unresponsive.clone();
        // Where no server answers, the store is away as a whole. A server without shards does not matter.
        if answers.is_empty() || answers.values().any(|answers| *answers) {
            unresponsive.retain(|server| answers.contains_key(server));
            self.0.retain(|server, _| answers.contains_key(server));
            for (server, answers) in answers {
                let count = self.0.entry(*server).or_default();
                *count = if *answers == unresponsive.contains(server) { *count + 1 } else { 0 };
                if *answers && *count >= BACK_AFTER {
                    unresponsive.remove(server);
                    *count = 0;
                } else if !*answers && *count >= UNRESPONSIVE_AFTER {
                    unresponsive.insert(*server);
                    *count = 0;
                }
            }
        }
        if unresponsive.len() > before.len() {
            warn!(
                servers = unresponsive.len(),
                "servers of the store do not answer this node, others may have their shards"
            );
        } else if unresponsive.is_empty() && !before.is_empty() {
            info!("all servers of the store answer this node again");
        }
        *unresponsive != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(one: bool, two: bool) -> BTreeMap<ServerId, bool> {
        [(ServerId(1), one), (ServerId(2), two)].into()
    }

    #[test]
    fn a_server_is_silent_after_three_answers_that_did_not_come_and_back_after_two_that_did() {
        let (mut counts, mut unresponsive) = (Counts::default(), BTreeSet::new());
        for _ in 0..2 {
            assert!(!counts.record(&answers(false, true), &mut unresponsive));
        }
        assert!(!counts.record(&answers(true, true), &mut unresponsive), "it starts again");
        for n in 1..=3 {
            assert_eq!(counts.record(&answers(false, true), &mut unresponsive), n == 3);
        }
        assert_eq!(unresponsive, [ServerId(1)].into());
        assert!(!counts.record(&answers(true, true), &mut unresponsive));
        assert!(counts.record(&answers(true, true), &mut unresponsive) && unresponsive.is_empty());
    }

    #[test]
    fn a_store_that_is_away_as_a_whole_has_no_silent_server() {
        let (mut counts, mut unresponsive) = (Counts::default(), BTreeSet::new());
        for _ in 0..10 {
            assert!(!counts.record(&answers(false, false), &mut unresponsive));
        }
        assert!(unresponsive.is_empty());
    }

    #[test]
    fn a_server_that_holds_no_shard_any_more_is_forgotten() {
        let (mut counts, mut unresponsive) = (Counts::default(), [ServerId(9)].into());
        assert!(counts.record(&answers(true, true), &mut unresponsive) && unresponsive.is_empty());
    }
}
