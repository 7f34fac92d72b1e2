//! Dead letters that live again while a shard is looked at: no look misses them.

use duetime_core::layer::{Call, Layered, StoreLayer};
use duetime_core::store::{AckWait, DeadAction, Settle, Settlement};
use duetime_core::{ClaimStore as _, Lookup, MessageStore as _, OnConflict, Role, Shard};
use duetime_testkit::claim_request;

use super::*;

/// Of 2 shards, the one that goes.
const SOURCE: u32 = 1;

/// Makes a message that was left where it is a dead letter, and lets it live again between two pages of the next look.
#[derive(Debug)]
struct DiesAndLives {
    store: Arc<SmallStore>,
    clock: Arc<TokioClock>,
    id: MessageId,
    /// By a new message of its id, else by a redrive.
    replaced: bool,
    scans: Mutex<u32>,
}

impl DiesAndLives {
    async fn die(&self, shard: &Shard) {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut claim = self.store.claim(shard, self.clock.now(), &claim_request(10)).await.unwrap();
        let held = claim.messages.remove(0);
        let bury = Settle { id: held.id, score: held.score, action: Settlement::Bury("refused".to_owned()) };
        self.store.settle_at(shard, Role::Source, self.clock.now(), &[bury], AckWait::No).await.unwrap();
    }

    async fn live(&self, shard: &Shard) {
        let (now, role) = (self.clock.now(), Role::Source);
        if self.replaced {
            let plain = plain_message(self.id.as_str(), Due::In(Duration::from_secs(3600)));
            let anew = [Enqueue { on_conflict: OnConflict::Replace, ..plain }];
            assert!(matches!(self.store.enqueue_at(shard, role, now, &anew).await.unwrap()[0], Lookup::Found(_)));
        } else {
            let ids = [self.id.clone()];
            let done = self.store.resolve_dead_letters_at(shard, role, now, &ids, DeadAction::Redrive).await.unwrap();
            assert_eq!(done.answers, [Lookup::Found(true)]);
        }
    }
}

impl StoreLayer for DiesAndLives {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let made = made.await;
        if call.op == "resize_scan" && call.shards[0].index == SOURCE {
            let nth = {
                let mut scans = self.scans.lock();
                *scans += 1;
                *scans
            };
            match nth {
                // The mover has seen the living, and left it, and the dead.
                2 => self.die(&call.shards[0]).await,
                // Whoever looks whether the shard is clean has seen the living.
                3 => self.live(&call.shards[0]).await,
                _ => {}
            }
        }
        made
    }
}

async fn no_change_is_done_before(replaced: bool) {
    let world = World::with(2, 0).await;
    let routing = world.record().await.routing;
    let is_there = |id: &MessageId| routing.home(&world.topic, id).index == SOURCE;
    let id = (0..).map(|n: u32| MessageId::new(&n.to_string()).unwrap()).find(is_there).unwrap();
    world.enqueue(id.as_str(), Duration::from_secs(1)).await;
    let (store, clock) = (world.small.clone(), world.clock.clone());
    let layer = Arc::new(DiesAndLives { store, clock, id, replaced, scans: Mutex::default() });
    let store: Arc<dyn Store> = Layered::new(world.store.clone(), layer.clone());
    let config = ResizeConfig { scrub_per_second: 0, ..ResizeConfig::default() };
    let resizer = world.resizer_with(config, MoveDeps::new(store));
    world.request(&resizer, 1).await.unwrap();
    assert_eq!(world.settle(&resizer).await.shards, 1);
    world.check(1).await;
    assert!(*layer.scans.lock() > 4, "the shard was looked at again");
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_redriven_between_two_pages_is_moved_before_the_change_is_done() {
    no_change_is_done_before(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_replaced_between_two_pages_is_moved_before_the_change_is_done() {
    no_change_is_done_before(true).await;
}
