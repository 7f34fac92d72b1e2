//! Turns: how many nodes there are, and that nothing makes them longer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use duetime_core::store::{ShardCounts, Wakeup};
use duetime_core::{ScheduleStore, Shard, StoreError, Timestamp};
use duetime_testkit::TokioClock;
use tokio::sync::broadcast;

use super::*;
use crate::tickets::Ticket;

/// Shards are on two servers, of which one never answers; all of the other are late.
#[derive(Debug)]
struct HalfSilentStore;

#[async_trait]
impl ScheduleStore for HalfSilentStore {
    async fn counts(&self, _: &[Shard], _: Timestamp) -> Result<Vec<Option<ShardCounts>>, StoreError> {
        unreachable!("ownership counts nothing")
    }
    fn server_of(&self, shard: &Shard) -> ServerId {
        ServerId(u64::from(shard.index % 2))
    }
    async fn next_due(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        if shards.iter().any(|shard| shard.index % 2 == 1) {
            std::future::pending::<()>().await;
        }
        Ok(vec![Some(Timestamp::ZERO); shards.len()])
    }
    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        broadcast::channel(1).1
    }
}

/// Places for this node and for another one, which takes as many turns.
#[derive(Debug, Default)]
struct TicketsOfTwo {
    away: AtomicBool,
    turns: AtomicU64,
    places: AtomicU64,
}

#[async_trait]
impl Tickets for TicketsOfTwo {
    async fn take(&self, places: u64) -> Result<Ticket, String> {
        if self.away.load(Ordering::SeqCst) {
            return Err("redis did not answer in time".to_owned());
        }
        let turns = self.turns.fetch_add(1, Ordering::SeqCst) + 1;
        let end = self.places.fetch_add(2 * places, Ordering::SeqCst) + places;
        Ok(Ticket { end, turns: turns * 2 })
    }
}

/// The server where nodes leave word never answers.
#[derive(Debug)]
struct SilentPresence;

#[async_trait]
impl Presence for SilentPresence {
    async fn say(&self, _: &str, _: &Member) -> Option<NodesSeen> {
        std::future::pending().await
    }
    async fn drain(&self, _: &str, _: Option<&Drain>) -> bool {
        false
    }
    async fn forget(&self, _: &str) {}
}

fn start(tickets: &Arc<TicketsOfTwo>) -> Arc<RoundRobin> {
    let meters = Arc::new(Meters::new());
    let supervisor = Supervisor::new(meters.clone());
    let late = OverdueShards::new(Arc::new(HalfSilentStore), TokioClock::at(Timestamp::from_millis(1_000_000)));
    RoundRobin::start(Member::default(), tickets.clone(), late, Arc::new(SilentPresence), meters, &supervisor)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_nothing_makes_no_turn_longer() {
    let tickets = Arc::<TicketsOfTwo>::default();
    let node = start(&tickets);
    node.demand(vec![(TopicName::new("orders").unwrap(), 12)]).await;
    // A turn longer than those of the others leaves shards to nobody meanwhile.
    tokio::time::sleep(TURN * 30).await;
    let turns = tickets.turns.load(Ordering::SeqCst);
    assert!((29..=32).contains(&turns), "{turns} turns in 30");
    assert_eq!(node.issue(), None);
}

#[tokio::test(start_paused = true)]
async fn late_shards_are_taken_also_where_no_turn_can_be_had() {
    let tickets = Arc::<TicketsOfTwo>::default();
    tickets.away.store(true, Ordering::SeqCst);
    let node = start(&tickets);
    node.demand(vec![(TopicName::new("orders").unwrap(), 12)]).await;
    tokio::time::sleep(TURN * 8).await;
    let owned: Vec<u32> = node.owned().borrow().0.iter().map(|(_, index)| *index).collect();
    assert_eq!(owned, [0, 2, 4, 6, 8, 10], "those of the server that answers");
    assert!(node.issue().is_some_and(|issue| issue.contains("did not answer in time")));
    tickets.away.store(false, Ordering::SeqCst);
    tokio::time::sleep(TURN * 2).await;
    assert_eq!(node.issue(), None);
}

#[test]
fn nodes_are_counted_by_their_turns_and_changing_places_changes_nothing() {
    let mut nodes = Nodes::default();
    assert_eq!(nodes.count(), 1);
    for turns in [10, 12, 15, 16, 18, 20, 23, 24] {
        nodes.saw(turns);
    }
    assert_eq!(nodes.count(), 2, "two nodes, by turns before and after each other");
    for turns in 25..29 {
        nodes.saw(turns);
    }
    assert_eq!(nodes.count(), 1, "the other one is gone");
    for turns in [32, 36, 40, 44] {
        nodes.saw(turns);
    }
    assert_eq!(nodes.count(), 4);
    nodes.saw(1);
    assert_eq!(nodes.count(), 1, "the counter began anew");
}
