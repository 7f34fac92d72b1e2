//! Bulk plans that are taken back, over a store that fails in between.

use duetime_core::resize_store::Frozen;
use duetime_core::{MessageState, MessageStore as _, Role};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::plans::{Failing, Nobody, die};
use super::*;
use crate::bulk::Plans;
use crate::bulk::plan::undo::{PlanUndo, UndoState};
use crate::bulk::plan::{BulkAction, BulkFilter, BulkPlan, PlanAsk, PlanStart, PlanState};

const LATER: Duration = Duration::from_secs(3600);

fn never() -> Failing {
    Failing { op: "none", shard: None, passes: 0.into(), fails: 0.into(), is_done: false }
}

fn node(fixture: &Fixture, failing: Failing) -> Arc<Plans> {
    let store = Layered::new(fixture.small.shared(), Arc::new(failing));
    let moves = Arc::new(MoveDeps::new(store.clone()));
    let (clock, meters) = (fixture.clock.clone(), Arc::new(Meters::new()));
    let router = Router::new(store.clone(), moves, fixture.catalog.clone(), clock.clone(), meters);
    Plans::new(router, store, clock, Arc::new(Nobody), "node")
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

    /// Plans this, and carries it out.
    async fn removed(&self, fixture: &Fixture, action: BulkAction) -> BulkPlan {
        let filter = BulkFilter::default();
        let ask = PlanAsk { action, to: None, filter, per_second: 1000, by: None, undoable: true };
        let plan = self.0.create(&fixture.topic, ask).await.unwrap();
        let how = PlanStart { at_most: Some(plan.expected), per_second: None };
        self.0.start(&fixture.topic, &plan.id, how).await.unwrap();
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
