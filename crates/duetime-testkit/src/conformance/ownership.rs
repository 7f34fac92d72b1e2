//! What every `Ownership` keeps: all shards are scanned by somebody, and whoever leaves or cannot
//! claim scans none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::ownership::Demand;
use duetime_core::{Drain, MemberState, OwnedShards, Ownership, TopicName};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::wait::{Because, let_pass};

/// Longest wait for the shards to be shared anew.
const PATIENCE: Duration = Duration::from_secs(12);
/// While no node comes or goes, each counts the same shards; some turns long.
const COUNTED_FOR: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn demand(topics: &[(&str, u32)]) -> Demand {
    topics.iter().map(|(topic, shards)| (TopicName::new(topic).expect("a good name"), *shards)).collect()
}

fn every(demand: &Demand) -> BTreeSet<(TopicName, u32)> {
    demand.iter().flat_map(|(topic, shards)| (0..*shards).map(|index| (topic.clone(), index))).collect()
}

/// A node without an engine: what it gives up is settled at once.
struct TestNode {
    ownership: Arc<dyn Ownership>,
    owned: watch::Receiver<Arc<OwnedShards>>,
}

impl TestNode {
    fn new(ownership: Arc<dyn Ownership>) -> Self {
        let (mut owned, settling) = (ownership.owned(), Arc::downgrade(&ownership));
        tokio::spawn(async move {
            let mut before = owned.borrow_and_update().clone();
            while owned.changed().await.is_ok() {
                let now = owned.borrow_and_update().clone();
                let Some(ownership) = settling.upgrade() else { return };
                for (topic, index) in before.0.difference(&now.0) {
                    ownership.settled(topic, *index).await;
                }
                before = now;
            }
        });
        Self { owned: ownership.owned(), ownership }
    }

    fn owned(&self) -> BTreeSet<(TopicName, u32)> {
        self.owned.borrow().0.clone()
    }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        crate::in_time!(Instant::now() < end, "{what}");
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
}

/// Runs every sentence for nodes that `start` makes, all of one installation. `several`: whether it
/// may have more than one.
///
/// # Panics
///
/// When the implementation does not keep one.
pub async fn run_all(start: impl AsyncFn(&str) -> Arc<dyn Ownership>, several: bool) {
    a_lone_node_owns_what_there_is_and_nothing_else(&start).await;
    an_unhealthy_node_says_why_and_owns_all_when_it_is_fit(&start).await;
    if several {
        two_nodes_own_everything_and_the_one_that_stays_takes_it_all(&start).await;
        the_shards_of_an_unhealthy_node_go_to_the_others(&start).await;
        a_drained_node_leaves_its_shards_to_the_others_while_there_are_any(&start).await;
    }
}

async fn a_lone_node_owns_what_there_is_and_nothing_else(start: &impl AsyncFn(&str) -> Arc<dyn Ownership>) {
    let node = TestNode::new(start("a").await);
    assert!(node.owned().is_empty(), "nothing was demanded yet");
    for topics in [&[("a", 3), ("b", 1)][..], &[("b", 70)], &[("b", 2), ("c", 0)], &[]] {
        let told = demand(topics);
        node.ownership.demand(told.clone()).await;
        until(&format!("it owns {topics:?}"), || node.owned() == every(&told)).await;
    }
    node.ownership.demand(demand(&[("a", 2)])).await;
    until("it owns again", || node.owned().len() == 2).await;
    let cluster = node.ownership.cluster();
    until("it shows itself", || cluster.borrow().members.values().any(|member| member.id == "a")).await;
    let a = TopicName::new("a").expect("a good name");
    until("it shows what it owns", || cluster.borrow().owner(&a, 1) == Some("a")).await;
    node.ownership.leave().await;
    assert!(node.owned().is_empty(), "who has left owns nothing");
}

async fn an_unhealthy_node_says_why_and_owns_all_when_it_is_fit(start: &impl AsyncFn(&str) -> Arc<dyn Ownership>) {
    let node = TestNode::new(start("a").await);
    node.ownership.demand(demand(&[("a", 5)])).await;
    until("it owns all", || node.owned().len() == 5).await;
    node.ownership.set_unhealthy(Some("its clock is wrong".to_owned())).await;
    // Whether it keeps its shards where nobody is better off is its own affair: it cannot claim.
    let cluster = node.ownership.cluster();
    let says = || {
        let cluster = cluster.borrow();
        cluster.members.values().any(|member| {
            member.state == MemberState::Unhealthy && member.unhealthy.as_deref() == Some("its clock is wrong")
        })
    };
    until("it says why", says).await;
    node.ownership.set_unhealthy(None).await;
    until("it owns all again", || node.owned().len() == 5).await;
    node.ownership.leave().await;
}

async fn two_nodes_own_everything_and_the_one_that_stays_takes_it_all(
    start: &impl AsyncFn(&str) -> Arc<dyn Ownership>,
) {
    let told = demand(&[("a", 9), ("b", 4)]);
    let (one, two) = (TestNode::new(start("one").await), TestNode::new(start("two").await));
    one.ownership.demand(told.clone()).await;
    two.ownership.demand(told.clone()).await;
    let shared = || {
        let (mine, theirs) = (one.owned(), two.owned());
        let union: BTreeSet<_> = mine.union(&theirs).cloned().collect();
        // Tickets overlap for a moment, and a count of nodes may be short by one; half is the aim.
        union == every(&told) && (6..=8).contains(&mine.len()) && (6..=8).contains(&theirs.len())
    };
    until("they share", shared).await;
    let cluster = one.ownership.cluster();
    until("they see each other", || cluster.borrow().members.len() == 2).await;
    let (mut mine, mut theirs) = (one.ownership.reported(), two.ownership.reported());
    let is_each_once = || {
        let (mine, theirs) = (mine.borrow(), theirs.borrow());
        mine.0.is_disjoint(&theirs.0) && mine.0.union(&theirs.0).count() == every(&told).len()
    };
    until("each shard is counted by one of them", is_each_once).await;
    mine.mark_unchanged();
    theirs.mark_unchanged();
    let_pass(COUNTED_FOR, Because::Quiet).await;
    let stayed = !mine.has_changed().unwrap() && !theirs.has_changed().unwrap();
    crate::in_time!(stayed, "counted by another all the time, though no node came or went");
    two.ownership.leave().await;
    assert!(two.owned().is_empty());
    until("one has all", || one.owned() == every(&told)).await;
    until("one counts all", || mine.borrow().0 == every(&told)).await;
    one.ownership.leave().await;
}

async fn the_shards_of_an_unhealthy_node_go_to_the_others(start: &impl AsyncFn(&str) -> Arc<dyn Ownership>) {
    let told = demand(&[("a", 8)]);
    let (one, two) = (TestNode::new(start("one").await), TestNode::new(start("two").await));
    one.ownership.demand(told.clone()).await;
    two.ownership.demand(told.clone()).await;
    until("two has some", || !two.owned().is_empty()).await;
    two.ownership.set_unhealthy(Some("its clock is wrong".to_owned())).await;
    until("one has all", || one.owned() == every(&told) && two.owned().is_empty()).await;
    two.ownership.set_unhealthy(None).await;
    until("two has some again", || !two.owned().is_empty() && one.owned().len() < 8).await;
    one.ownership.leave().await;
    two.ownership.leave().await;
}

async fn a_drained_node_leaves_its_shards_to_the_others_while_there_are_any(
    start: &impl AsyncFn(&str) -> Arc<dyn Ownership>,
) {
    let told = demand(&[("a", 8)]);
    let (one, two) = (TestNode::new(start("one").await), TestNode::new(start("two").await));
    one.ownership.demand(told.clone()).await;
    two.ownership.demand(told.clone()).await;
    until("two has some", || !two.owned().is_empty()).await;
    let (seen_by_one, seen_by_two) = (one.ownership.cluster(), two.ownership.cluster());
    let name = || seen_by_one.borrow().members.iter().find(|(_, m)| m.id == "two").map(|(name, _)| name.clone());
    until("one knows two", || name().is_some()).await;
    let (name, drain) = (name().expect("it was there"), Some(Drain { by: Some("ops".to_owned()), at_ms: 1 }));
    one.ownership.drain(&name, drain.clone()).await.expect("the other node drains it");
    until("one has all", || one.owned() == every(&told) && two.owned().is_empty()).await;
    for cluster in [&seen_by_one, &seen_by_two] {
        let shows = || cluster.borrow().members.get(&name).is_some_and(|two| two.drain == drain);
        until("both show who drains it", shows).await;
    }
    for cluster in [&seen_by_one, &seen_by_two] {
        until("a drained node does no work and is not counted", || cluster.borrow().nodes() == 1).await;
    }
    two.ownership.drain(&name, None).await.expect("it ends its own");
    until("two has some again", || !two.owned().is_empty() && one.owned().len() < 8).await;
    two.ownership.drain(&name, drain).await.expect("it drains itself");
    until("one has all again", || one.owned() == every(&told) && two.owned().is_empty()).await;
    one.ownership.leave().await;
    until("nobody else is left to scan them", || two.owned() == every(&told)).await;
    two.ownership.leave().await;
}
