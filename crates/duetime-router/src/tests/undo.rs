//! Bulk plans that are taken back, over a store that fails in between.

use duetime_core::resize_store::Frozen;
use duetime_core::{MessageState, MessageStore as _, Role};
use duetime_testkit::TokioClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::plans::{Failing, Nobody, die};
use super::*;
use crate::bulk::page::{TakeOut, take_out};
use crate::bulk::plan::undo::{PlanUndo, UndoState};
use crate::bulk::plan::{BulkAction, BulkFilter, BulkPlan, ItemOutcome, PlanAsk, PlanStart, PlanState};
use crate::bulk::{LATE_FOR, PlanDeps, Plans};

const LATER: Duration = Duration::from_secs(3600);

fn never() -> Failing {
    Failing { op: "none", shard: None, passes: 0.into(), fails: 0.into(), is_done: false }
}

/// What plans are carried out with over a store that fails so.
fn deps(fixture: &Fixture, failing: Failing) -> PlanDeps {
    let store = Layered::new(fixture.small.shared(), Arc::new(failing));
    let moves = Arc::new(MoveDeps::new(store.clone()));
    let (clock, meters) = (fixture.clock.clone(), Arc::new(Meters::new()));
    let router = Router::new(store.clone(), moves, fixture.catalog.clone(), clock.clone(), meters);
    PlanDeps::new(router, store, clock, Arc::new(Nobody), "node")
}

fn node(fixture: &Fixture, failing: Failing) -> Arc<Plans> {
    Plans::new(deps(fixture, failing))
}

/// Two nodes whose clocks go on, the first over a store that fails so.
fn two_nodes(fixture: &Fixture, failing: Failing) -> (Running, Running) {
    let clock = TokioClock::at(fixture.clock.now());
    let named = |name: &str, failing| {
        let deps = deps(fixture, failing);
        Running::start(Plans::new(PlanDeps { node: name.to_owned(), clock: clock.clone(), ..deps }))
    };
    (named("first", failing), named("second", never()))
}

/// A node that runs, and ends with its process.
struct Running(Arc<Plans>, JoinHandle<()>);

impl Running {
    fn start(plans: Arc<Plans>) -> Self {
        let run = tokio::spawn(plans.clone().run(CancellationToken::new()));
        Self(plans, run)
    }

    async fn seen(&self, fixture: &Fixture, id: &str, wanted: impl Fn(&BulkPlan) -> bool) -> BulkPlan {
        loop {
            let plan = self.0.get(&fixture.topic, id).await.unwrap();
            if wanted(&plan) {
                return plan;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Plans this, at so many a second, and starts it.
    async fn started(&self, fixture: &Fixture, action: BulkAction, per_second: u32) -> BulkPlan {
        let filter = BulkFilter::default();
        let ask = PlanAsk { action, to: None, filter, per_second, by: None, undoable: true };
        let plan = self.0.create(&fixture.topic, ask).await.unwrap();
        let how = PlanStart { at_most: Some(plan.expected), per_second: None };
        self.0.start(&fixture.topic, &plan.id, how).await.unwrap()
    }

    /// Plans this, and carries it out.
    async fn removed(&self, fixture: &Fixture, action: BulkAction) -> BulkPlan {
        let plan = self.started(fixture, action, 1000).await;
        self.seen(fixture, &plan.id, |plan| plan.state.has_ended()).await
    }

    async fn taken_back(&self, fixture: &Fixture, plan: &BulkPlan) -> PlanUndo {
        self.0.undo(&fixture.topic, &plan.id, Some("who")).await.unwrap();
        self.seen(fixture, &plan.id, |plan| !plan.is_undoing()).await.undo.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.1.abort();
    }
}

async fn fill(fixture: &Fixture, names: std::ops::Range<u32>) {
    let later = |n: u32| Enqueue { due: Due::In(LATER), ..message(&n.to_string()) };
    assert!(fixture.enqueue(names.map(later).collect()).await.iter().all(Result::is_ok));
}

async fn scheduled(fixture: &Fixture) -> u64 {
    fixture.router.counter.count(&fixture.topic).await.unwrap().total.scheduled
}

fn counts(undo: &PlanUndo) -> (UndoState, u64, [u64; 3]) {
    (undo.state, undo.kept, [undo.restored, undo.left, undo.unknown])
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_answer_is_lost_is_repeated_and_puts_nothing_back_twice() {
    let fixture = Fixture::remembering(2).await;
    fill(&fixture, 0..40).await;
    let op = Failing { op: "restore", shard: Some(0), passes: 0.into(), fails: 1.into(), is_done: true };
    let node = Running::start(node(&fixture, op));
    let plan = node.removed(&fixture, BulkAction::Cancel).await;
    assert_eq!((plan.counts.done, scheduled(&fixture).await), (40, 0));
    let undo = node.taken_back(&fixture, &plan).await;
    let (state, kept, [restored, left, unknown]) = counts(&undo);
    assert_eq!((state, kept, left, restored + unknown), (UndoState::Done, 40, 0, 40), "{undo:?}");
    assert!(unknown > 0, "{undo:?}");
    assert_eq!((scheduled(&fixture).await, undo.by.as_deref()), (40, Some("who")));
}

#[tokio::test(start_paused = true)]
async fn what_was_removed_without_an_answer_is_put_back_too() {
    let fixture = Fixture::remembering(1).await;
    fill(&fixture, 0..40).await;
    let op = Failing { op: "edit", shard: None, passes: 0.into(), fails: 1.into(), is_done: true };
    let node = Running::start(node(&fixture, op));
    let plan = node.removed(&fixture, BulkAction::Cancel).await;
    assert_eq!((plan.state, plan.acted_on(), scheduled(&fixture).await), (PlanState::Done, 40, 0), "{plan:?}");
    let undo = node.taken_back(&fixture, &plan).await;
    assert_eq!(counts(&undo), (UndoState::Done, 40, [40, 0, 0]), "{undo:?}");
    assert_eq!(scheduled(&fixture).await, 40);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_removes_after_its_caller_gave_up_is_put_back_after_that() {
    let fixture = Fixture::remembering(2).await;
    fill(&fixture, 0..40).await;
    let op = Failing { op: "edit", shard: Some(0), passes: 0.into(), fails: u32::MAX.into(), is_done: false };
    let node = Running::start(node(&fixture, op));
    let plan = node.removed(&fixture, BulkAction::Cancel).await;
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    let ids = (0..40).map(|n| MessageId::new(&n.to_string()).unwrap());
    let at_first = ids.filter(|id| record.routing.home(&fixture.topic, id).index == 0).collect();
    let waiting = fixture.router.get(&fixture.topic, at_first).await.into_iter().filter_map(|answer| answer.unwrap().1);
    let late: Vec<Edit> = waiting.map(|one| Frozen::taken_out(one, plan.removes_as()).unwrap().0).collect();
    assert_eq!((plan.state, plan.counts.failed), (PlanState::Done, late.len() as u64), "{plan:?}");
    let carried_out_late = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let shard = record.shard(0);
        fixture.small.edit_at(&shard, Role::Home, fixture.clock.now(), &late).await.unwrap();
        assert_eq!(scheduled(&fixture).await, 40 - late.len() as u64);
    };
    let (undo, ()) = tokio::join!(node.taken_back(&fixture, &plan), carried_out_late);
    assert_eq!(counts(&undo), (UndoState::Done, 40, [40, 0, 0]), "{undo:?}");
    assert_eq!(scheduled(&fixture).await, 40);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_delays_it() {
    let fixture = Fixture::remembering(1).await;
    die(&fixture, (0..10).map(|n| n.to_string())).await;
    let op = Failing { op: "restore", shard: None, passes: 0.into(), fails: 3.into(), is_done: false };
    let node = Running::start(node(&fixture, op));
    let plan = node.removed(&fixture, BulkAction::Purge).await;
    let undo = node.taken_back(&fixture, &plan).await;
    assert_eq!(counts(&undo), (UndoState::Done, 10, [10, 0, 0]), "{undo:?}");
    assert_eq!(fixture.router.counter.count(&fixture.topic).await.unwrap().total.dead, 10);
}

#[tokio::test(start_paused = true)]
async fn what_was_removed_under_another_shard_count_is_left_alone() {
    let fixture = Fixture::remembering(2).await;
    fill(&fixture, 0..20).await;
    let node = Running::start(node(&fixture, never()));
    let plan = node.removed(&fixture, BulkAction::Cancel).await;
    fixture.resize(4, true).await;
    let undo = node.taken_back(&fixture, &plan).await;
    assert_eq!(counts(&undo), (UndoState::Done, 20, [0, 20, 0]), "{undo:?}");
    assert_eq!(scheduled(&fixture).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_was_enqueued_or_cancelled_since_is_left_alone() {
    let fixture = Fixture::remembering(1).await;
    fill(&fixture, 0..10).await;
    let node = Running::start(node(&fixture, never()));
    let plan = node.removed(&fixture, BulkAction::Cancel).await;
    let anew = Enqueue { due: Due::In(Duration::from_secs(5)), on_conflict: OnConflict::Replace, ..message("3") };
    assert!(fixture.enqueue(vec![anew]).await[0].is_ok());
    fixture.router.edit(&fixture.topic, vec![Edit::Cancel(id("4"))]).await.remove(0).unwrap();
    let undo = node.taken_back(&fixture, &plan).await;
    assert_eq!(counts(&undo), (UndoState::Done, 10, [8, 2, 0]), "{undo:?}");
    let ids = ["3", "4", "5"].map(id).to_vec();
    let found = fixture.router.get(&fixture.topic, ids).await.into_iter().map(|found| found.unwrap().1);
    let visible = found.map(|there| there.map(|there| (there.state, there.visible_at)));
    let at = |by: Duration| Some((MessageState::Scheduled, fixture.clock.now().plus(by)));
    assert_eq!(visible.collect::<Vec<_>>(), [at(Duration::from_secs(5)), None, at(LATER)]);
}

#[tokio::test(start_paused = true)]
async fn the_next_life_of_a_node_says_that_what_it_kept_is_lost() {
    let fixture = Fixture::remembering(1).await;
    fill(&fixture, 0..10).await;
    let first = Running::start(node(&fixture, never()));
    let plan = first.removed(&fixture, BulkAction::Cancel).await;
    assert_eq!(plan.undo.as_ref().unwrap().state, UndoState::Possible);
    drop(first);
    let next = Running::start(node(&fixture, never()));
    let lost = next.seen(&fixture, &plan.id, |plan| plan.undo.as_ref().unwrap().state == UndoState::Lost).await;
    let refused = next.0.undo(&fixture.topic, &plan.id, None).await.unwrap_err().to_string();
    assert!(refused.contains("\"node\"") && refused.contains("has ended"), "{refused}");
    assert_eq!((lost.state, scheduled(&fixture).await), (PlanState::Done, 0));
}

#[tokio::test(start_paused = true)]
async fn only_a_topic_that_remembers_for_ten_minutes_has_its_plans_taken_back() {
    let fixture = Fixture::with_shards(1).await;
    fill(&fixture, 0..10).await;
    let node = Running::start(node(&fixture, never()));
    let plan = node.removed(&fixture, BulkAction::Cancel).await;
    assert_eq!((plan.counts.done, plan.undo.as_ref().unwrap().state), (10, UndoState::Impossible));
    let refused = node.0.undo(&fixture.topic, &plan.id, None).await.unwrap_err().to_string();
    assert!(refused.contains("set \"remember\" of the topic to 10m"), "{refused}");
    // It remembers when the plan is made, and not any more when it is carried out.
    fixture.catalog.put(&fixture.topic, &change(r#"{"remember":"10m"}"#)).await.unwrap();
    fill(&fixture, 10..20).await;
    let ask = PlanAsk {
        action: BulkAction::Cancel,
        to: None,
        filter: BulkFilter::default(),
        per_second: 1000,
        by: None,
        undoable: true,
    };
    let plan = node.0.create(&fixture.topic, ask).await.unwrap();
    assert_eq!(plan.undo.as_ref().unwrap().state, UndoState::Keeping);
    fixture.catalog.put(&fixture.topic, &change(r#"{"remember":"9m"}"#)).await.unwrap();
    node.0.start(&fixture.topic, &plan.id, PlanStart { at_most: Some(10), per_second: None }).await.unwrap();
    let plan = node.seen(&fixture, &plan.id, |plan| plan.state.has_ended()).await;
    assert_eq!((plan.counts.done, plan.undo.as_ref().unwrap().kept), (10, 0));
    let refused = node.0.undo(&fixture.topic, &plan.id, None).await.unwrap_err().to_string();
    assert!(refused.contains("nothing that it removed was kept"), "{refused}");
}

/// Which node keeps what a plan removed, how many of how many.
fn keeps(plan: &BulkPlan) -> (&str, u64, u64) {
    let undo = plan.undo.as_ref().unwrap();
    (undo.node.split('/').next().unwrap(), undo.kept, plan.counts.done)
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_held_while_the_store_does_not_list_its_messages() {
    let fixture = Fixture::remembering(1).await;
    fill(&fixture, 0..40).await;
    // The count, and two pages; then for longer than a plan is held, and left to the node that keeps.
    let op = Failing { op: "list_messages", shard: None, passes: 3.into(), fails: 60.into(), is_done: false };
    let (first, second) = two_nodes(&fixture, op);
    let plan = first.started(&fixture, BulkAction::Cancel, 10).await;
    let plan = second.seen(&fixture, &plan.id, |plan| plan.state.has_ended()).await;
    assert_eq!((keeps(&plan), plan.state), (("first", 40, 40), PlanState::Done), "{plan:?}");
    let undo = second.taken_back(&fixture, &plan).await;
    assert_eq!(counts(&undo), (UndoState::Done, 40, [40, 0, 0]), "{undo:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_away_goes_on_with_the_plan_of_which_it_keeps_something() {
    let fixture = Fixture::remembering(1).await;
    fill(&fixture, 0..40).await;
    // Made, started, taken and a page announced; then for longer than a plan is held.
    let op = Failing { op: "change_plan", shard: None, passes: 4.into(), fails: 30.into(), is_done: false };
    let (first, second) = two_nodes(&fixture, op);
    let plan = first.started(&fixture, BulkAction::Cancel, 10).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let seen = second.0.get(&fixture.topic, &plan.id).await.unwrap();
    assert_eq!((seen.state, seen.acted_on()), (PlanState::Running, 10), "it was away: {seen:?}");
    let plan = second.seen(&fixture, &plan.id, |plan| plan.state.has_ended()).await;
    assert_eq!(keeps(&plan), ("first", 40, 40), "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_goes_on_at_another_node_once_the_one_that_keeps_something_is_away_for_a_minute() {
    let fixture = Fixture::remembering(1).await;
    fill(&fixture, 0..40).await;
    let (first, second) = two_nodes(&fixture, never());
    let plan = first.started(&fixture, BulkAction::Cancel, 10).await;
    second.seen(&fixture, &plan.id, |plan| plan.undo.as_ref().unwrap().kept == 20).await;
    drop(first);
    let (begun, plan) = (tokio::time::Instant::now(), plan.id);
    let plan = second.seen(&fixture, &plan, |plan| plan.state.has_ended()).await;
    assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
    let (node, kept, done) = keeps(&plan);
    assert!(node == "second" && kept > 0 && kept < done, "{plan:?}");
    let undo = second.taken_back(&fixture, &plan).await;
    assert_eq!(counts(&undo), (UndoState::Done, kept, [kept, 0, 0]), "{undo:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_started_again_goes_on_where_what_it_removed_is_kept() {
    let fixture = Fixture::remembering(1).await;
    fill(&fixture, 0..40).await;
    let (first, second) = two_nodes(&fixture, never());
    let plan = first.started(&fixture, BulkAction::Cancel, 10).await;
    first.seen(&fixture, &plan.id, |plan| plan.undo.as_ref().unwrap().kept > 0).await;
    first.0.stop(&fixture.topic, &plan.id).await.unwrap();
    first.seen(&fixture, &plan.id, |plan| plan.state == PlanState::Stopped).await;
    // By the node that is told of it.
    second.0.start(&fixture.topic, &plan.id, PlanStart::default()).await.unwrap();
    let plan = second.seen(&fixture, &plan.id, |plan| plan.state.has_ended()).await;
    assert_eq!(keeps(&plan), ("first", 40, 40), "{plan:?}");
}

/// Reschedules a message before the first removal of any, once, or before each; and answers so many reads only.
struct Meddling {
    fixture: Arc<Fixture>,
    to: Duration,
    times: std::sync::atomic::AtomicU32,
    reads: std::sync::atomic::AtomicU32,
}

impl std::fmt::Debug for Meddling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meddling").finish_non_exhaustive()
    }
}

impl StoreLayer for Meddling {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        if call.op == "edit"
            && self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
        {
            let by = self.to + Duration::from_secs(u64::from(self.times.load(Ordering::SeqCst)));
            let later = Edit::Reschedule(id("3"), Due::At(self.fixture.clock.now().plus(by)));
            self.fixture.router.edit(&self.fixture.topic, vec![later]).await.remove(0).unwrap();
        }
        if call.op == "get"
            && self.reads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_err()
        {
            return Err(StoreError::Unavailable { doing: "get", source: "it is away".into() });
        }
        made.await
    }
}

/// Cancels what is due within two hours; one message is rescheduled meanwhile, to so late, so many times, and so many
/// reads are answered.
async fn cancelled_meanwhile(to: Duration, times: u32, reads: u32) -> (BulkPlan, Option<UndoState>, u64) {
    let fixture = Arc::new(Fixture::remembering(1).await);
    fill(&fixture, 0..10).await;
    let meddling = Meddling { fixture: fixture.clone(), to, times: times.into(), reads: reads.into() };
    let store = Layered::new(fixture.small.shared(), Arc::new(meddling));
    let moves = Arc::new(MoveDeps::new(store.clone()));
    let (clock, meters) = (fixture.clock.clone(), Arc::new(Meters::new()));
    let router = Router::new(store.clone(), moves, fixture.catalog.clone(), clock.clone(), meters);
    let node = Running::start(Plans::new(PlanDeps::new(router, store, clock, Arc::new(Nobody), "node")));
    let due_to = Some(fixture.clock.now().plus(2 * LATER).as_millis());
    let filter = BulkFilter { due_to, ..BulkFilter::default() };
    let ask = PlanAsk { action: BulkAction::Cancel, to: None, filter, per_second: 1000, by: None, undoable: true };
    let plan = node.0.create(&fixture.topic, ask).await.unwrap();
    node.0.start(&fixture.topic, &plan.id, PlanStart { at_most: Some(10), per_second: None }).await.unwrap();
    let plan = node.seen(&fixture, &plan.id, |plan| plan.state.has_ended()).await;
    let undo = node.taken_back(&fixture, &plan).await;
    (plan, Some(undo.state), scheduled(&fixture).await)
}

#[tokio::test(start_paused = true)]
async fn what_changes_before_it_is_removed_is_removed_and_kept_as_it_is_by_then() {
    let (plan, state, there) = cancelled_meanwhile(LATER + Duration::from_secs(60), 1, 9).await;
    assert_eq!((keeps(&plan), plan.counts.unchanged), (("node", 10, 10), 0), "{plan:?}");
    assert_eq!((state, there), (Some(UndoState::Done), 10));
    // What changes twice is removed all the same, for good.
    let (plan, _, there) = cancelled_meanwhile(LATER + Duration::from_secs(60), 2, 9).await;
    assert_eq!((keeps(&plan), there), (("node", 9, 10), 9), "{plan:?}");
    // What the plan does not mean any more stays.
    let (plan, _, there) = cancelled_meanwhile(3 * LATER, 1, 9).await;
    assert_eq!((keeps(&plan), plan.counts.unchanged, there), (("node", 9, 9), 1, 10), "{plan:?}");
    // So does what cannot be read again: nobody knows what it is by then.
    let (plan, _, there) = cancelled_meanwhile(3 * LATER, 1, 1).await;
    assert_eq!((keeps(&plan), plan.counts.failed, there), (("node", 9, 9), 1, 10), "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn no_more_is_read_at_once_than_may_be_kept_in_memory_for_a_page() {
    let fixture = Fixture::remembering(1).await;
    fixture
        .catalog
        .put(&fixture.topic, &change(r#"{"shards":1,"remember":"1h","max_payload":1048576}"#))
        .await
        .unwrap();
    let large = |n: u32| Enqueue { payload: vec![0; 64 << 10].into(), due: Due::In(LATER), ..message(&n.to_string()) };
    for first in [0, 64, 128, 192] {
        assert!(fixture.enqueue((first..first + 64).map(large).collect()).await.iter().all(Result::is_ok));
    }
    let calls = Arc::new(Failing { op: "get", shard: None, passes: u32::MAX.into(), fails: 0.into(), is_done: false });
    let store = Layered::new(fixture.small.shared(), calls.clone());
    let moves = Arc::new(MoveDeps::new(store.clone()));
    let (clock, meters) = (fixture.clock.clone(), Arc::new(Meters::new()));
    let router = Router::new(store.clone(), moves, fixture.catalog.clone(), clock.clone(), meters);
    let plans = Plans::new(PlanDeps::new(router.clone(), store, clock, Arc::new(Nobody), "node"));
    let (action, filter) = (BulkAction::Cancel, BulkFilter::default());
    let ask = PlanAsk { action, to: None, filter, per_second: 1000, by: None, undoable: true };
    let plan = plans.create(&fixture.topic, ask).await.unwrap();
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    let mut ids: Vec<MessageId> = (0..256).map(|n| id(&n.to_string())).collect();
    let how = TakeOut { room: usize::MAX, within: Duration::from_secs(10), late_for: LATE_FOR };
    let (outcomes, taken) = take_out(&router, &plan, &record, (&mut ids, Vec::new()), how).await;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == ItemOutcome::Done));
    // 8 MiB of 64 KiB each, eight at a time, as if each were of the largest size.
    let reads = u32::MAX - calls.passes.load(Ordering::SeqCst);
    assert_eq!((outcomes.len(), taken.len(), ids.len(), reads), (128, 128, 128, 16));
}

#[test]
fn what_has_no_answer_waits_for_as_long_as_the_store_may_go_on_with_it() {
    let secs = Duration::from_secs;
    assert_eq!((LATE_FOR, crate::late_for(secs(60), secs(10))), (secs(45), secs(145)));
}
