//! Notices servers of the store that answer others and not this node: their shards go to nodes that
//! they answer.
//!
//! A store of one server is not asked: whether it answers at all is found out elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::contract::by_place;
use duetime_core::ownership::Demand;
use duetime_core::{ChangeId, Place, ScheduleStore, Shard};
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
/// A server that does not answer so many times in a row, while others do, is silent to this node.
const SILENT_AFTER: u32 = 3;
/// It is no longer when it has answered so many times in a row.
const BACK_AFTER: u32 = 2;

/// Servers that are silent to this node at present. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Silent {
    places: watch::Receiver<BTreeSet<Place>>,
    _stop: DropGuard,
}

impl Silent {
    pub(crate) fn watch(
        store: Arc<dyn ScheduleStore>,
        demand: watch::Receiver<Demand>,
        supervisor: &Supervisor,
    ) -> Self {
        let (reports, places) = watch::channel(BTreeSet::new());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        supervisor.start("silent servers", Policy::RestartOrEnd, &stop, move || {
            let watch = notice(store.clone(), demand.clone(), reports.clone());
            stopped.clone().run_until_cancelled_owned(watch).map(drop)
        });
        Self { places, _stop: stop.drop_guard() }
    }

    /// Waits for a change and answers what is silent from then on.
    pub(crate) async fn changed(&mut self) -> BTreeSet<Place> {
        if self.places.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.now()
    }

    pub(crate) fn now(&mut self) -> BTreeSet<Place> {
        self.places.borrow_and_update().clone()
    }
}

async fn notice(
    store: Arc<dyn ScheduleStore>,
    demand: watch::Receiver<Demand>,
    reports: watch::Sender<BTreeSet<Place>>,
) {
    let mut counts = Counts::default();
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let shards = named(&crate::flat(&demand.borrow().clone()));
        let answers = ask(&*store, &shards).await;
        reports.send_if_modified(|silent| counts.heard(&answers, silent));
    }
}

/// Shards as they are named by who asks and acts on nothing: without an epoch.
pub(crate) fn named(all: &[crate::ShardName]) -> Vec<Shard> {
    all.iter()
        .map(|(topic, index)| Shard { topic: topic.clone(), index: *index, epoch: 0, change_id: ChangeId::default() })
        .collect()
}

/// Whether each server answers about one of its shards; nothing for the only one there is.
async fn ask(store: &dyn ScheduleStore, shards: &[Shard]) -> BTreeMap<Place, bool> {
    let places = by_place(store, shards);
    if places.len() < 2 {
        return BTreeMap::new();
    }
    let asked = places.into_iter().map(|(place, at)| async move {
        let one = std::slice::from_ref(&shards[at[0]]);
        let answer = tokio::time::timeout(ANSWER_WITHIN, store.next_due(one)).await;
        (place, matches!(answer, Ok(Ok(_))))
    });
    join_all(asked).await.into_iter().collect()
}

#[derive(Debug, Default)]
struct Counts(BTreeMap<Place, u32>);

impl Counts {
    /// Counts answers that are not as the present state of their server; true: a state has changed.
    fn heard(&mut self, answers: &BTreeMap<Place, bool>, silent: &mut BTreeSet<Place>) -> bool {
        let before = silent.clone();
        // A store of which nothing answers is away as a whole; a server without shards is nobody's concern.
        if answers.is_empty() || answers.values().any(|answers| *answers) {
            silent.retain(|place| answers.contains_key(place));
            self.0.retain(|place, _| answers.contains_key(place));
            for (place, answers) in answers {
                let count = self.0.entry(*place).or_default();
                *count = if *answers == silent.contains(place) { *count + 1 } else { 0 };
                if *answers && *count >= BACK_AFTER {
                    silent.remove(place);
                    *count = 0;
                } else if !*answers && *count >= SILENT_AFTER {
                    silent.insert(*place);
                    *count = 0;
                }
            }
        }
        if silent.len() > before.len() {
            warn!(servers = silent.len(), "servers of the store do not answer this node, others may have their shards");
        } else if silent.is_empty() && !before.is_empty() {
            info!("all servers of the store answer this node again");
        }
        *silent != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(one: bool, two: bool) -> BTreeMap<Place, bool> {
        [(Place(1), one), (Place(2), two)].into()
    }

    #[test]
    fn a_server_is_silent_after_three_answers_that_did_not_come_and_back_after_two_that_did() {
        let (mut counts, mut silent) = (Counts::default(), BTreeSet::new());
        for _ in 0..2 {
            assert!(!counts.heard(&answers(false, true), &mut silent));
        }
        assert!(!counts.heard(&answers(true, true), &mut silent), "it begins anew");
        for n in 1..=3 {
            assert_eq!(counts.heard(&answers(false, true), &mut silent), n == 3);
        }
        assert_eq!(silent, [Place(1)].into());
        assert!(!counts.heard(&answers(true, true), &mut silent));
        assert!(counts.heard(&answers(true, true), &mut silent) && silent.is_empty());
    }

    #[test]
    fn a_store_that_is_away_as_a_whole_has_no_silent_server() {
        let (mut counts, mut silent) = (Counts::default(), BTreeSet::new());
        for _ in 0..10 {
            assert!(!counts.heard(&answers(false, false), &mut silent));
        }
        assert!(silent.is_empty());
    }

    #[test]
    fn a_server_that_holds_no_shard_any_more_is_forgotten() {
        let (mut counts, mut silent) = (Counts::default(), [Place(9)].into());
        assert!(counts.heard(&answers(true, true), &mut silent) && silent.is_empty());
    }
}
