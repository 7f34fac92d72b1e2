//! Bulk plans over a store that fails in between.

use std::sync::atomic::AtomicU32;

use duetime_core::Role;
use duetime_core::store::{AckWait, Settle, Settlement};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::bulk::plan::{BulkAction, BulkFilter, BulkPlan, PlanAsk, PlanCounts, PlanStart, PlanState};
use crate::bulk::{PlanDeps, PlanWatcher, Plans};

/// Fails one operation on one shard, or on none, so many times after so many calls: before it is made, or after it.
#[derive(Debug)]
pub(super) struct Failing {
    pub(super) op: &'static str,
    pub(super) shard: Option<u32>,
    pub(super) passes: AtomicU32,
    pub(super) fails: AtomicU32,
    pub(super) is_done: bool,
}

fn counts_down(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl StoreLayer for Failing {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let is_it = call.op == self.op && self.shard.is_none_or(|shard| call.shards.iter().any(|s| s.index == shard));
        let fails = is_it && !counts_down(&self.passes) && counts_down(&self.fails);
        let away = || Err(StoreError::Unavailable { doing: "test", source: "away".into() });
        match fails {
            true if self.is_done => made.await.and_then(|_| away()),
            true => away(),
            false => made.await,
        }
    }
}

#[derive(Debug)]
pub(super) struct Nobody;

impl PlanWatcher for Nobody {
    fn failed(&self, _plan: &BulkPlan, _id: &str, _reason: &str) {}
}

/// Dead letters with these names, one after the other.
pub(super) async fn die(fixture: &Fixture, names: impl Iterator<Item = String>) {
    let names: Vec<String> = names.collect();
    assert!(fixture.enqueue(names.iter().map(|name| message(name)).collect()).await.iter().all(Result::is_ok));
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    for shard in record.routing.all(&fixture.topic) {
        let claim = fixture.small.claim(&shard, fixture.clock.now(), &claim_request(BATCH_ITEMS_MAX)).await.unwrap();
        let bury = |one: duetime_core::store::ClaimedMessage| Settle {
            id: one.id,
            score: one.score,
            action: Settlement::Bury("bad".to_owned()),
        };
        let batch: Vec<Settle> = claim.messages.into_iter().map(bury).collect();
        let now = fixture.clock.now();
        fixture.small.settle_at(&shard, Role::Home, now, &batch, AckWait::No).await.unwrap();
    }
}

/// Carries a purge out, of as many as are given, at a node whose store fails so.
async fn purged(fixture: &Fixture, at_most: u64, failing: Failing) -> BulkPlan {
    let store = Layered::new(fixture.small.shared(), Arc::new(failing));
    let moves = Arc::new(MoveDeps::new(store.clone()));
    let (clock, meters) = (fixture.clock.clone(), Arc::new(Meters::new()));
    let router = Router::new(store.clone(), moves, fixture.catalog.clone(), clock.clone(), meters);
    let plans = Plans::new(PlanDeps::new(router, store, clock, Arc::new(Nobody), "node"));
    let (action, filter) = (BulkAction::Purge, BulkFilter::default());
    let ask = PlanAsk { action, to: None, filter, per_second: 100, by: None, undoable: false };
    let plan = plans.create(&fixture.topic, ask).await.unwrap();
    let how = PlanStart { at_most: Some(at_most), per_second: None };
    plans.start(&fixture.topic, &plan.id, how).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(plans.clone().run(stop.clone()));
    let ended = loop {
        let plan = plans.get(&fixture.topic, &plan.id).await.unwrap();
        if plan.state.has_ended() {
            break plan;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    stop.cancel();
    running.await.unwrap();
    ended
}

async fn dead(fixture: &Fixture) -> u64 {
    fixture.router.counter.count(&fixture.topic).await.unwrap().total.dead
}

#[tokio::test(start_paused = true)]
async fn a_page_that_could_not_be_announced_is_carried_out_later() {
    let fixture = Fixture::with_shards(1).await;
    die(&fixture, (0..10).map(|n| n.to_string())).await;
    // Made, started, taken; then the announcement of the only page.
    let op = Failing { op: "change_plan", shard: None, passes: 3.into(), fails: 1.into(), is_done: false };
    let plan = purged(&fixture, 10, op).await;
    assert_eq!((plan.state, plan.counts), (PlanState::Done, PlanCounts { done: 10, ..PlanCounts::default() }));
    assert_eq!(dead(&fixture).await, 0);
}

#[tokio::test(start_paused = true)]
async fn no_more_are_acted_on_than_were_agreed_to_where_the_store_does_not_say_that_it_did() {
    let fixture = Fixture::with_shards(1).await;
    die(&fixture, (0..50).map(|n| n.to_string())).await;
    let op = Failing { op: "resolve_dead_letters", shard: None, passes: 0.into(), fails: 3.into(), is_done: true };
    let plan = purged(&fixture, 10, op).await;
    assert_eq!((plan.acted_on(), dead(&fixture).await), (10, 40), "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_fails_a_plan_fails_for_its_own_dead_letters_alone() {
    let fixture = Fixture::with_shards(2).await;
    die(&fixture, (0..40).map(|n| n.to_string())).await;
    let shards = fixture.router.counter.count(&fixture.topic).await.unwrap().shards;
    let of_first = shards[0].unwrap().dead;
    let op = Failing {
        op: "resolve_dead_letters",
        shard: Some(0),
        passes: 0.into(),
        fails: u32::MAX.into(),
        is_done: false,
    };
    let plan = purged(&fixture, 40, op).await;
    let counts = plan.counts;
    assert_eq!((counts.done, counts.failed), (40 - of_first, of_first), "{plan:?}");
    assert_eq!(dead(&fixture).await, of_first);
}

#[tokio::test(start_paused = true)]
async fn what_falls_due_at_once_within_a_smear_is_met_once() {
    let fixture = Fixture::with_shards(1).await;
    let later = |n: u32| Enqueue { due: Due::In(Duration::from_secs(u64::from(n))), ..message(&n.to_string()) };
    assert!(fixture.enqueue((1..=200).map(|n| later(n * 18)).collect()).await.iter().all(Result::is_ok));
    // Some are put later than they were.
    fixture.catalog.put(&fixture.topic, &change(r#"{"smear":"1h"}"#)).await.unwrap();
    let store = fixture.store.clone();
    let (router, clock) = (fixture.router.clone(), fixture.clock.clone());
    let plans = Plans::new(PlanDeps::new(router, store, clock, Arc::new(Nobody), "node"));
    let (action, filter) = (BulkAction::DueNow, BulkFilter::default());
    let ask = PlanAsk { action, to: None, filter, per_second: 20, by: None, undoable: false };
    let plan = plans.create(&fixture.topic, ask).await.unwrap();
    let at_most = Some(plan.expected);
    plans.start(&fixture.topic, &plan.id, PlanStart { at_most, per_second: None }).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(plans.clone().run(stop.clone()));
    while !plans.get(&fixture.topic, &plan.id).await.unwrap().state.has_ended() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    running.await.unwrap();
    let plan = plans.get(&fixture.topic, &plan.id).await.unwrap();
    assert_eq!(plan.counts.done, plan.expected, "{plan:?}");
    let start = Timestamp::from_millis(plan.started_at.unwrap());
    let names: Vec<MessageId> = (1..=200).map(|n| id(&(n * 18).to_string())).collect();
    for (name, found) in names.iter().zip(fixture.router.get(&fixture.topic, names.clone()).await) {
        let there = found.unwrap().1.unwrap();
        let at = start.plus(duetime_core::smear::offset(name, Duration::from_secs(3600)));
        assert_eq!(there.due_at, at, "{name} was not touched");
    }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_of_a_clock_that_was_ahead_are_counted_and_purged() {
    let fixture = Fixture::with_shards(1).await;
    let now = fixture.clock.now();
    fixture.clock.advance(Duration::from_secs(86_400));
    die(&fixture, ["ahead".to_owned()].into_iter()).await;
    fixture.clock.set(now);
    let op = Failing { op: "none", shard: None, passes: 0.into(), fails: 0.into(), is_done: false };
    let plan = purged(&fixture, 10, op).await;
    assert_eq!((plan.expected, plan.counts.done, dead(&fixture).await), (1, 1, 0), "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_was_made_again_has_no_plans_of_its_former_life() {
    let fixture = Fixture::with_shards(1).await;
    die(&fixture, ["one".to_owned()].into_iter()).await;
    let op = Failing { op: "none", shard: None, passes: 0.into(), fails: 0.into(), is_done: false };
    purged(&fixture, 10, op).await;
    let store = fixture.store.clone();
    let (router, clock) = (fixture.router.clone(), fixture.clock.clone());
    let plans = Plans::new(PlanDeps::new(router, store, clock, Arc::new(Nobody), "node"));
    assert_eq!(plans.of_topic(&fixture.topic).await.unwrap().len(), 1);
    assert!(fixture.catalog.delete(&fixture.topic, duetime_core::Deletion::Force).await.unwrap());
    fixture.catalog.put(&fixture.topic, &change(r#"{"shards":1}"#)).await.unwrap();
    assert!(plans.of_topic(&fixture.topic).await.unwrap().is_empty());
}
