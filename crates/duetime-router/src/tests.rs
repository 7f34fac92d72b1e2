//! Batch queues, routing and the catalog against a store on a small Redis.

mod counts;
mod ends;
mod forwarding;
mod limits;
mod lives;
mod past;
mod plans;
mod retention;
mod series;
mod store_rollback;
mod undo;
mod watermark;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use duetime_core::Draw;
use duetime_core::layer::{Call, Layered, StoreLayer};
use duetime_core::limits::{BATCH_ITEMS_MAX, ENQUEUE_BYTES_MAX};
use duetime_core::store::{ClaimRequest, Edit, Edited, Enqueue, EnqueueOutcome};
use duetime_core::{
    AutoShards, ChangeId, ClaimStore as _, Clock, Due, MessageId, OnConflict, Receipt, Routing, RoutingAuthority as _,
    RoutingRecord, RoutingState, ShardCount, StoreError, Timestamp, TopicConfig, TopicName,
};
use duetime_metrics::{Event, Meters};
use duetime_resize::MoveDeps;
use duetime_small_store::SmallStore;
use duetime_testkit::{ManualClock, claim_request, plain_message};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{Catalog, RouteError, Router, SettleAnswer, SettleAsk, TopicChange};

mod written;

/// Notes the size of every enqueue, holds them while the test says so, and fails as the test says.
#[derive(Debug)]
struct Watched {
    gate: Semaphore,
    gated: AtomicBool,
    batches: Mutex<Vec<(u32, usize)>>,
    looks: AtomicU64,
    not_ready: AtomicU64,
    bad_shard: Mutex<Option<u32>>,
    /// Shards that were asked what is not done.
    undone: AtomicU64,
    /// Batches of changes that have come, and which of them are refused.
    edits: Mutex<(u64, Range<u64>)>,
    /// Dead letters are not moved out.
    moves_fail: AtomicBool,
    /// Replicas are behind.
    behind: AtomicBool,
    /// Where reads, creations and deletions of topics are held up, while they are.
    reads: Mutex<Option<Arc<Semaphore>>>,
    writes: Mutex<Option<Arc<Semaphore>>>,
}

/// Waits until whoever holds this up lets it go on.
async fn pass(held: &Mutex<Option<Arc<Semaphore>>>) {
    let held = held.lock().clone();
    if let Some(held) = held {
        held.acquire().await.unwrap().forget();
    }
}

/// Holds up what passes there from now on.
fn hold(held: &Mutex<Option<Arc<Semaphore>>>) -> Arc<Semaphore> {
    held.lock().insert(Arc::new(Semaphore::new(0))).clone()
}

fn takes_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl Watched {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        let away = |doing, why: &'static str| Err(StoreError::Unavailable { doing, source: why.into() });
        match (call.op, call.shards) {
            ("topics", _) => {
                self.looks.fetch_add(1, Ordering::SeqCst);
            }
            ("put_topic" | "delete_topic", _) => pass(&self.writes).await,
            ("edit_dead_letters", _) if self.moves_fail.load(Ordering::SeqCst) => return away("move out", "down"),
            ("confirm", _) if self.behind.load(Ordering::SeqCst) => return away("wait for replicas", "behind"),
            ("enqueue", [shard]) => {
                assert!(call.items <= BATCH_ITEMS_MAX);
                self.batches.lock().push((shard.index, call.items));
                if self.gated.load(Ordering::SeqCst) {
                    self.gate.acquire().await.unwrap().forget();
                }
                if *self.bad_shard.lock() == Some(shard.index) {
                    return away("enqueue", "down");
                }
                if takes_one(&self.not_ready) {
                    return Err(StoreError::NotReady(shard.to_string()));
                }
            }
            ("watermark", [shard]) => {
                self.undone.fetch_add(1, Ordering::SeqCst);
                if *self.bad_shard.lock() == Some(shard.index) {
                    return away("read what is not done", "down");
                }
            }
            ("edit", [shard]) => {
                let mut edits = self.edits.lock();
                edits.0 += 1;
                if edits.1.contains(&edits.0) {
                    return Err(StoreError::NotReady(shard.to_string()));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl StoreLayer for Watched {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.before(call).await?;
        let answer = made.await;
        if call.op == "topics" {
            pass(&self.reads).await;
        }
        answer
    }
}

struct Fixture {
    small: SmallStore,
    watched: Arc<Watched>,
    store: Arc<Layered<Arc<Watched>>>,
    catalog: Arc<Catalog>,
    clock: Arc<ManualClock>,
    meters: Arc<Meters>,
    router: Arc<Router>,
    topic: TopicName,
}

impl Fixture {
    async fn with_shards(shards: u32) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_763_683_200_000));
        let small = SmallStore::new(clock.clone()).await;
        let watched = Arc::new(Watched {
            gate: Semaphore::new(0),
            gated: AtomicBool::new(false),
            batches: Mutex::default(),
            looks: AtomicU64::new(0),
            not_ready: AtomicU64::new(0),
            bad_shard: Mutex::new(None),
            undone: AtomicU64::new(0),
            edits: Mutex::new((0, 0..0)),
            moves_fail: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            reads: Mutex::default(),
            writes: Mutex::default(),
        });
        let store = Layered::new(small.shared(), watched.clone());
        let meters = Arc::new(Meters::new());
        let catalog = Catalog::open(store.clone(), clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
        let topic = TopicName::new("orders").unwrap();
        catalog.put(&topic, &change(&format!("{{\"shards\":{shards}}}"))).await.unwrap();
        let router = Router::new(
            store.clone(),
            Arc::new(MoveDeps::new(store.clone())),
            catalog.clone(),
            clock.clone(),
            meters.clone(),
        );
        Self { small, watched, store, catalog, clock, meters, router, topic }
    }

    async fn enqueue(&self, items: Vec<Enqueue>) -> Vec<Result<crate::Placed, RouteError>> {
        self.router.enqueue(&self.topic, items).await
    }

    fn counted(&self, event: Event) -> u64 {
        self.meters.topic(&self.topic).counted(event)
    }
}

fn change(text: &str) -> TopicChange {
    TopicChange::new(serde_json::from_str(text).unwrap())
}

fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

fn message(name: &str) -> Enqueue {
    plain_message(name, Due::In(Duration::ZERO))
}

#[tokio::test]
async fn many_messages_go_to_their_homes_in_bounded_batches_and_answer_in_order() {
    let fixture = Fixture::with_shards(8).await;
    let items: Vec<Enqueue> = (0..5000).map(|n| message(&n.to_string())).collect();
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    let homes: Vec<u32> = items.iter().map(|item| record.routing.home(&fixture.topic, &item.id).index).collect();
    let answers = fixture.enqueue(items).await;
    let placed: Vec<u32> = answers.into_iter().map(|answer| answer.unwrap().shard).collect();
    assert_eq!(placed, homes);
    assert_eq!(fixture.watched.batches.lock().iter().map(|(_, n)| n).sum::<usize>(), 5000);
    assert!(fixture.watched.batches.lock().len() <= 8 * 5000_usize.div_ceil(BATCH_ITEMS_MAX).div_ceil(4));
    assert_eq!(fixture.counted(Event::Scheduled), 5000);
    assert_eq!(fixture.router.counter.count(&fixture.topic).await.unwrap().total.scheduled, 5000);
}

#[tokio::test]
async fn batches_are_cut_by_bytes_and_a_large_message_goes_alone() {
    let fixture = Fixture::with_shards(1).await;
    let large = |name: &str, bytes: usize| Enqueue { payload: vec![0; bytes].into(), ..message(name) };
    let items = vec![
        large("a", ENQUEUE_BYTES_MAX / 2),
        large("b", ENQUEUE_BYTES_MAX / 3),
        large("c", ENQUEUE_BYTES_MAX * 4),
        large("d", 1),
    ];
    assert!(fixture.enqueue(items).await.iter().all(Result::is_ok));
    assert_eq!(fixture.watched.batches.lock().iter().map(|(_, n)| *n).collect::<Vec<_>>(), [2, 1, 1]);
}

#[tokio::test]
async fn the_same_id_twice_in_one_request_acts_as_if_one_after_the_other() {
    let fixture = Fixture::with_shards(4).await;
    let over = Enqueue { on_conflict: OnConflict::Replace, ..message("a") };
    let answers = fixture.enqueue(vec![message("a"), message("a"), over, message("a")]).await;
    let outcomes: Vec<EnqueueOutcome> = answers.into_iter().map(|answer| answer.unwrap().outcome).collect();
    use EnqueueOutcome::{Duplicate, Replaced, Scheduled};
    assert_eq!(outcomes, [Scheduled, Duplicate, Replaced, Duplicate]);
    assert_eq!((fixture.counted(Event::Duplicate), fixture.counted(Event::Replaced)), (2, 1));
    let cancel = || Edit::Cancel(id("a"));
    let edits = fixture.router.edit(&fixture.topic, vec![cancel(), cancel()]).await;
    assert_eq!(
        edits.into_iter().map(|edit| edit.unwrap().edited).collect::<Vec<_>>(),
        [Edited::Cancelled, Edited::Unknown]
    );
    assert_eq!(fixture.counted(Event::Cancelled), 1);
}

#[tokio::test]
async fn a_cancel_keeps_its_answer_when_a_reschedule_of_the_same_batch_is_refused() {
    let fixture = Fixture::with_shards(1).await;
    // The second batch is the reschedule.
    for (round, refused) in [2..3, 2..u64::MAX].into_iter().enumerate() {
        fixture.enqueue(vec![message("a"), message("b"), message("c")]).await;
        let later = Due::At(fixture.clock.now().plus(Duration::from_secs(60)));
        *fixture.watched.edits.lock() = (0, refused);
        let batch = vec![Edit::Cancel(id("a")), Edit::Reschedule(id("b"), later), Edit::Cancel(id("c"))];
        let answers = fixture.router.edit(&fixture.topic, batch).await;
        assert_eq!(answers[0].as_ref().unwrap().edited, Edited::Cancelled, "it was done before the refusal");
        if round == 0 {
            assert!(matches!(answers[1].as_ref().unwrap().edited, Edited::Rescheduled(_)));
            assert_eq!(answers[2].as_ref().unwrap().edited, Edited::Cancelled);
        } else {
            assert!(answers[1].is_err(), "{:?}", answers[1]);
        }
        *fixture.watched.edits.lock() = (0, 0..0);
        fixture.router.edit(&fixture.topic, vec![Edit::Cancel(id("b")), Edit::Cancel(id("c"))]).await;
    }
}

#[tokio::test]
async fn single_requests_that_come_while_a_call_is_under_way_share_the_next_one() {
    let fixture = Arc::new(Fixture::with_shards(1).await);
    fixture.watched.gated.store(true, Ordering::SeqCst);
    let spawn = |n: u32| {
        let fixture = fixture.clone();
        tokio::spawn(async move { fixture.enqueue(vec![message(&n.to_string())]).await })
    };
    let mut tasks = vec![spawn(0)];
    while fixture.watched.batches.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    tasks.extend((1..101).map(spawn));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    fixture.watched.gated.store(false, Ordering::SeqCst);
    fixture.watched.gate.add_permits(1);
    for task in tasks {
        assert!(task.await.unwrap()[0].is_ok());
    }
    assert_eq!(*fixture.watched.batches.lock(), [(0, 1), (0, 100)]);
}

#[tokio::test]
async fn a_caller_that_goes_away_takes_nobodys_messages_along() {
    let fixture = Arc::new(Fixture::with_shards(1).await);
    fixture.watched.gated.store(true, Ordering::SeqCst);
    let spawn = |name: &'static str| {
        let fixture = fixture.clone();
        tokio::spawn(async move { fixture.enqueue(vec![message(name)]).await })
    };
    let first = spawn("gone");
    while fixture.watched.batches.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let second = spawn("stays");
    tokio::task::yield_now().await;
    first.abort();
    fixture.watched.gate.add_permits(2);
    assert!(second.await.unwrap()[0].is_ok());
    let found = fixture.router.get(&fixture.topic, vec![id("gone"), id("stays")]).await;
    assert!(found.into_iter().all(|answer| answer.unwrap().1.is_some()));
}

#[tokio::test]
async fn a_shard_that_fails_fails_for_its_own_items_only() {
    let fixture = Fixture::with_shards(4).await;
    *fixture.watched.bad_shard.lock() = Some(1);
    let items: Vec<Enqueue> = (0..2000).map(|n| message(&n.to_string())).collect();
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    let homes: Vec<u32> = items.iter().map(|item| record.routing.home(&fixture.topic, &item.id).index).collect();
    for (answer, home) in fixture.enqueue(items).await.into_iter().zip(homes) {
        assert_eq!(answer.is_ok(), home != 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_not_ready_is_asked_again_and_nothing_is_answered_twice() {
    let fixture = Fixture::with_shards(4).await;
    fixture.watched.not_ready.store(5, Ordering::SeqCst);
    let answers = fixture.enqueue((0..1000).map(|n| message(&n.to_string())).collect()).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(placed) if placed.outcome == EnqueueOutcome::Scheduled)));
    fixture.watched.not_ready.store(1000, Ordering::SeqCst);
    let answers = fixture.enqueue(vec![message("x")]).await;
    assert!(matches!(&answers[0], Err(RouteError::Store(error)) if matches!(**error, StoreError::NotReady(_))));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_another_node_made_or_deleted_is_noticed() {
    let fixture = Fixture::with_shards(2).await;
    let other =
        Catalog::open(fixture.store.clone(), fixture.clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
    let bills = TopicName::new("bills").unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(matches!(fixture.router.enqueue(&bills, vec![message("a")]).await[0], Err(RouteError::UnknownTopic(_))));
    other.put(&bills, &TopicChange::default()).await.unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(fixture.router.enqueue(&bills, vec![message("a")]).await[0].is_ok());
    assert!(other.delete(&fixture.topic, duetime_core::Deletion::Force).await.unwrap());
    assert!(matches!(fixture.enqueue(vec![message("a")]).await[0], Err(RouteError::UnknownTopic(_))));
    assert!(matches!(fixture.router.counter.count(&fixture.topic).await, Err(RouteError::UnknownTopic(_))));
    assert_eq!(fixture.router.counter.count_all().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn names_nobody_knows_cost_few_looks_at_the_store() {
    let fixture = Fixture::with_shards(1).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let before = fixture.watched.looks.load(Ordering::SeqCst);
    let nobody = async |n: u32| fixture.router.topic(&TopicName::new(&format!("nope-{n}")).unwrap()).await.is_err();
    assert!(futures::future::join_all((0..1000).map(nobody)).await.into_iter().all(|unknown| unknown));
    // The first one looks at once, all others share the next look.
    assert_eq!(fixture.watched.looks.load(Ordering::SeqCst) - before, 2);
}

#[tokio::test]
async fn a_topic_that_two_nodes_create_at_once_is_that_of_one_of_them() {
    let fixture = Fixture::with_shards(1).await;
    let other =
        Catalog::open(fixture.store.clone(), fixture.clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
    for n in 0..20 {
        let name = TopicName::new(&format!("bills-{n}")).unwrap();
        let (a, b) = (change(r#"{"max_messages":1}"#), change(r#"{"max_messages":2}"#));
        let (a, b) = tokio::join!(fixture.catalog.create(&name, &a), other.create(&name, &b));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert!(a.created != b.created, "one of them created it");
        let (made, found) = if a.created { (a, b) } else { (b, a) };
        assert_eq!(made.record, found.record);
        assert_eq!(found.record.version, 1);
    }
}

#[tokio::test]
async fn changes_by_two_nodes_at_once_are_both_kept() {
    let fixture = Fixture::with_shards(2).await;
    let other =
        Catalog::open(fixture.store.clone(), fixture.clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
    let (a, b) = (change(r#"{"visibility_timeout":"5s"}"#), change(r#"{"max_payload":7}"#));
    let (first, second) = tokio::join!(fixture.catalog.put(&fixture.topic, &a), other.put(&fixture.topic, &b));
    assert!(first.is_ok() && second.is_ok());
    fixture.catalog.refresh().await.unwrap();
    let config = &fixture.catalog.get(&fixture.topic).unwrap().config;
    assert_eq!((config.visibility_timeout, config.max_payload), (Duration::from_secs(5), 7));
}

#[tokio::test]
async fn a_topic_in_the_configuration_is_created_once_and_its_shards_stay() {
    let fixture = Fixture::with_shards(2).await;
    let bills = TopicName::new("bills").unwrap();
    let mut watch = fixture.catalog.watch();
    watch.mark_unchanged();
    let config = TopicChange::whole(&TopicConfig::default());
    assert!(fixture.catalog.create(&bills, &config).await.unwrap().created);
    assert!(watch.has_changed().unwrap());
    assert!(!fixture.catalog.create(&bills, &config).await.unwrap().created);
    watch.mark_unchanged();
    fixture.catalog.refresh().await.unwrap();
    assert!(!watch.has_changed().unwrap(), "who watches hears of changes only");
    let requested = fixture.catalog.put(&fixture.topic, &change(r#"{"shards":3}"#)).await.unwrap().record;
    assert_eq!(
        (requested.config.shards, requested.routing.shards),
        (ShardCount::Fixed(3), 2),
        "a setting is only a request"
    );
    fixture.catalog.set_nodes(5);
    let auto = fixture.catalog.put(&TopicName::new("auto").unwrap(), &TopicChange::default()).await.unwrap();
    assert_eq!(auto.record.routing.shards, 32);
    fixture.catalog.set_auto(AutoShards { factor: 16, min: 16, max: 64 });
    let made = fixture.catalog.put(&TopicName::new("auto-too").unwrap(), &TopicChange::default()).await.unwrap();
    assert_eq!(made.record.routing.shards, 64, "as [resize] says, so that nothing moves a moment later");
}

#[tokio::test]
async fn receipts_are_settled_in_the_shard_they_were_claimed_from() {
    let fixture = Fixture::with_shards(4).await;
    fixture.enqueue((0..40).map(|n| message(&n.to_string())).collect()).await;
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    let mut asks = Vec::new();
    for shard in record.routing.all(&fixture.topic) {
        let request = claim_request(256);
        let claim = fixture.store.claim(&shard, fixture.clock.now(), &request).await.unwrap();
        for message in claim.messages {
            asks.push((
                Receipt::new(&fixture.topic, shard.index, shard.epoch, message.id, message.score),
                SettleAsk::Ack,
            ));
        }
    }
    assert_eq!(asks.len(), 40);
    asks[7].1 = SettleAsk::Nack(None, None);
    asks[8].1 = SettleAsk::Extend(None);
    asks.push((asks[0].0.clone(), SettleAsk::Ack));
    let settled = Receipt::new(&fixture.topic, 0, 1, id("gone"), Receipt::SETTLED);
    asks.push((settled.clone(), SettleAsk::Ack));
    asks.push((settled, SettleAsk::Nack(None, None)));
    let answers: Vec<SettleAnswer> = fixture
        .router
        .settle(&fixture.topic, asks.clone())
        .await
        .into_iter()
        .map(|settled| settled.unwrap().0)
        .collect();
    assert!(answers[..40].iter().enumerate().all(|(at, answer)| at == 8 || *answer == SettleAnswer::Ok));
    assert!(matches!(&answers[8], SettleAnswer::Extended(receipt) if receipt.id == asks[8].0.id));
    assert_eq!(answers[40..], [SettleAnswer::Already, SettleAnswer::Ok, SettleAnswer::Expired]);
    assert_eq!((fixture.counted(Event::Delivered), fixture.counted(Event::Retried)), (38, 1));
}

#[tokio::test]
async fn a_change_that_a_failover_may_still_undo_is_not_taken_in() {
    let fixture = Fixture::with_shards(2).await;
    let seen = fixture.catalog.get(&fixture.topic).unwrap().routing_record();
    let mut new = seen.clone();
    new.routing = Routing {
        epoch: seen.routing.epoch + 1,
        change_id: ChangeId(9),
        shards: 4,
        previous: 2,
        state: duetime_core::RoutingState::Moving,
        seed: None,
        watermark: false,
        max_in_flight: None,
    };
    fixture.small.swap_routing(&fixture.topic, &seen, &new).await.unwrap();
    fixture.watched.behind.store(true, Ordering::SeqCst);
    fixture.catalog.refresh().await.unwrap();
    assert_eq!(fixture.catalog.get(&fixture.topic).unwrap().routing, seen.routing);
    assert!(
        Catalog::open(fixture.store.clone(), fixture.clock.clone(), Draw::new(rand::random::<u64>)).await.is_err(),
        "nothing older is known there"
    );
    fixture.watched.behind.store(false, Ordering::SeqCst);
    fixture.catalog.refresh().await.unwrap();
    assert_eq!(fixture.catalog.get(&fixture.topic).unwrap().routing, new.routing);
}
