//! The view decides: members come, go, drain; keys are taken, given up, lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Member, MemberState, ServerId, TopicName};
use tokio::time::Instant;

use super::view::{CALM, Plan, SETTLE_MAX, STANDS, View};
use crate::ShardName;

fn all(count: u32) -> Vec<ShardName> {
    let topic = TopicName::new("orders").unwrap();
    (0..count).map(|index| (topic.clone(), index)).collect()
}

/// Shards are on two servers in turn.
fn server_of(shard: &ShardName) -> ServerId {
    ServerId(u64::from(shard.1 % 2))
}

fn member() -> Member {
    Member { id: "n".to_owned(), ..Member::default() }
}

fn name(text: &str) -> Arc<str> {
    text.into()
}

struct World {
    view: View,
    now: Instant,
    revision: i64,
    all: Vec<ShardName>,
    owned: BTreeSet<ShardName>,
}

impl World {
    fn new(shards: u32) -> Self {
        let now = Instant::now();
        let view = View::new(name("a"), now);
        Self { view, now, revision: 0, all: all(shards), owned: BTreeSet::new() }
    }

    fn with(mut self, members: &[&str]) -> Self {
        for member_name in members {
            self.view.member(name(member_name), Some(member()), self.now);
        }
        self.later(CALM);
        self
    }

    fn later(&mut self, by: Duration) {
        self.now += by;
    }

    fn key(&mut self, shard: ShardName, owner: Option<&str>) {
        self.revision += 1;
        self.view.key(shard, owner.map(name), self.revision);
    }

    fn plan(&mut self) -> Plan {
        let plan = self.view.plan(&self.all, true, &self.owned, &server_of, self.now);
        self.owned = plan.owned.clone();
        plan
    }

    /// Plans, and does what the plan says.
    fn act(&mut self) -> Plan {
        let plan = self.plan();
        for shard in &plan.take {
            self.key(shard.clone(), Some("a"));
            self.owned.insert(shard.clone());
        }
        for shard in &plan.drop {
            self.key(shard.clone(), None);
        }
        plan
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_waits_for_calm_and_takes_its_share_of_what_is_free() {
    let mut world = World::new(10);
    world.view.member(name("a"), Some(member()), world.now);
    assert_eq!(world.plan(), Plan::default(), "others may be about to come");
    world.view.member(name("b"), Some(member()), world.now);
    world.later(CALM);
    let plan = world.act();
    assert_eq!((plan.take.len(), plan.drop.len()), (5, 0));
    assert_eq!(world.plan().owned.len(), 5);
    assert!(world.plan().take.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_goes_to_a_newcomer_is_given_up_then_settled_then_dropped() {
    let mut world = World::new(12).with(&["a", "b"]);
    world.act();
    let before = world.owned.clone();
    world.view.member(name("c"), Some(member()), world.now);
    world.later(CALM);
    let plan = world.plan();
    let given: Vec<ShardName> = before.difference(&plan.owned).cloned().collect();
    assert!(!given.is_empty() && plan.drop.is_empty(), "it stops scanning first: {plan:?}");
    world.view.settled(&given[0], world.now);
    assert_eq!(world.act().drop, [given[0].clone()], "dropped as soon as it is settled");
    world.later(SETTLE_MAX);
    assert_eq!(world.act().drop, given[1..], "a slow sink does not keep the others waiting for ever");
    assert!(world.plan().drop.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_comes_back_before_it_was_dropped_is_scanned_on() {
    let mut world = World::new(12).with(&["a", "b"]);
    world.act();
    let before = world.owned.clone();
    world.view.member(name("c"), Some(member()), world.now);
    world.later(CALM);
    assert_ne!(world.plan().owned, before);
    world.view.member(name("c"), None, world.now);
    world.later(CALM);
    let plan = world.plan();
    assert_eq!(plan.owned, before);
    world.later(SETTLE_MAX);
    assert!(world.plan().drop.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_dead_node_are_taken_over_and_known_as_such() {
    let mut world = World::new(8).with(&["a", "b"]);
    world.act();
    let theirs: Vec<ShardName> = world.all.iter().filter(|shard| !world.owned.contains(*shard)).cloned().collect();
    for shard in &theirs {
        world.key(shard.clone(), Some("b"));
    }
    for shard in &theirs {
        world.key(shard.clone(), None);
    }
    world.view.member(name("b"), None, world.now);
    assert!(world.plan().take.is_empty(), "perhaps it comes back at once");
    world.later(CALM);
    assert_eq!(world.plan().take, theirs);
    assert!(theirs.iter().all(|shard| world.view.is_orphan(shard)));
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_lease_what_is_free_is_scanned_on_and_what_others_took_is_not() {
    let mut world = World::new(8).with(&["a"]);
    world.act();
    let scanned = world.owned.clone();
    assert_eq!(scanned.len(), 8);
    // Another connection, another lease: nothing is known but what is scanned.
    world.view = View::new(name("a"), world.now);
    world.view.member(name("a"), Some(member()), world.now);
    assert_eq!(world.plan().owned, scanned, "until it is known who else is there");
    world.view.member(name("b"), Some(member()), world.now);
    let taken = world.all[3].clone();
    world.key(taken.clone(), Some("b"));
    world.later(CALM);
    let plan = world.plan();
    assert!(!plan.owned.contains(&taken));
    assert!(plan.owned.iter().all(|shard| plan.take.contains(shard)), "scanned on while the keys are taken");
    assert!(plan.owned.len() >= 3, "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_node_gives_everything_up_and_gets_nothing() {
    let mut world = World::new(6).with(&["a", "b"]);
    world.act();
    let plan = world.view.plan(&world.all, false, &world.owned, &server_of, world.now);
    assert!(plan.owned.is_empty() && plan.take.is_empty());
    let unhealthy = Member { state: MemberState::Unhealthy, ..member() };
    world.view.member(name("b"), Some(unhealthy), world.now);
    world.later(CALM);
    assert_eq!(world.act().take.len(), 3, "the share of the unhealthy one is the others'");
}

#[tokio::test(start_paused = true)]
async fn where_nobody_is_fit_everybody_keeps_a_share() {
    let mut world = World::new(6).with(&["a", "b"]);
    world.act();
    let unhealthy = Member { state: MemberState::Unhealthy, ..member() };
    world.view.member(name("b"), Some(unhealthy.clone()), world.now);
    world.view.member(name("a"), Some(unhealthy), world.now);
    world.later(CALM);
    let plan = world.view.plan(&world.all, false, &world.owned, &server_of, world.now);
    assert_eq!((plan.owned.len(), plan.drop.len()), (3, 0), "as soon as one can claim again, all is scanned");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_older_than_what_this_node_wrote_changes_nothing() {
    let mut world = World::new(1).with(&["a"]);
    let shard = world.all[0].clone();
    world.view.key(shard.clone(), Some(name("a")), 9);
    world.view.key(shard.clone(), None, 8);
    assert!(world.plan().owned.contains(&shard));
    world.view.key(shard, None, 10);
    assert_eq!(world.plan().take.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_wakes_for_calm_and_for_shards_it_gives_up_and_else_for_nothing() {
    let mut world = World::new(4);
    assert_eq!(world.view.wakes_at(), Some(world.now + CALM));
    world = world.with(&["a"]);
    world.act();
    assert_eq!(world.view.wakes_at(), None);
    world.all.clear();
    world.plan();
    assert_eq!(world.view.wakes_at(), Some(world.now + SETTLE_MAX));
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_shared_is_not_forgotten_when_other_work_comes_first() {
    let mut world = World::new(4).with(&["a", "b"]);
    world.act();
    world.view.member(name("b"), None, world.now);
    let due = world.now + CALM;
    // The lease was renewed at the very moment: the plan is late, and still due.
    world.later(CALM * 2);
    tokio::time::advance(CALM * 2).await;
    assert_eq!(world.view.wakes_at(), Some(due));
    world.act();
    assert_eq!(world.owned.len(), 4);
    assert_eq!(world.view.wakes_at(), None);
}

fn cut_off(from: u64) -> Member {
    Member { unreachable: [ServerId(from)].into(), ..member() }
}

#[tokio::test(start_paused = true)]
async fn shards_whose_server_is_silent_to_their_owner_go_to_nodes_that_it_answers() {
    let mut world = World::new(12).with(&["a", "b", "c"]);
    world.act();
    let before = world.owned.clone();
    world.view.member(name("a"), Some(cut_off(1)), world.now);
    world.later(STANDS);
    let plan = world.act();
    assert!(plan.owned.iter().all(|shard| server_of(shard) == ServerId(0)), "{plan:?}");
    assert!(plan.take.is_empty() && plan.owned.is_subset(&before), "nothing else moves: {plan:?}");
    world.view.member(name("a"), Some(member()), world.now);
    world.later(STANDS);
    assert_eq!(world.plan().owned, before, "and they come back before they were dropped");
}

#[tokio::test(start_paused = true)]
async fn shards_that_another_does_not_reach_are_shared_by_those_that_do() {
    let mut world = World::new(12).with(&["a", "b"]);
    world.act();
    let before = world.owned.clone();
    world.view.member(name("b"), Some(cut_off(1)), world.now);
    world.later(STANDS);
    let taken = world.act().take;
    let theirs = world.all.iter().filter(|shard| !before.contains(*shard) && server_of(shard) == ServerId(1));
    assert_eq!(taken, theirs.cloned().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_to_all_moves_nothing() {
    let mut world = World::new(12).with(&["a", "b"]);
    world.act();
    let before = world.owned.clone();
    world.view.member(name("b"), Some(cut_off(1)), world.now);
    world.later(STANDS / 2);
    assert!(world.plan().take.is_empty(), "another may be about to say the same");
    world.view.member(name("a"), Some(cut_off(1)), world.now);
    world.later(STANDS);
    let plan = world.plan();
    assert!(plan.take.is_empty() && plan.owned == before, "{plan:?}");
}

/// etcd is back; `a` has taken the shards of `b` in between, which still has their keys.
fn back_with_the_shards_of_b() -> (World, BTreeSet<ShardName>) {
    let mut world = World::new(8).with(&["a", "b"]);
    world.act();
    let adopted: BTreeSet<_> = world.all.iter().filter(|shard| !world.owned.contains(*shard)).cloned().collect();
    for shard in &adopted {
        world.key(shard.clone(), Some("b"));
    }
    world.owned.extend(adopted.iter().cloned());
    world.view.adopt(adopted.clone(), world.now + SETTLE_MAX * 5);
    (world, adopted)
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_while_etcd_was_away_is_scanned_on_until_the_dead_nodes_keys_are_gone() {
    let (mut world, adopted) = back_with_the_shards_of_b();
    world.later(SETTLE_MAX);
    assert_eq!(world.act().owned.len(), 8, "no second gap");
    for shard in &adopted {
        world.key(shard.clone(), None);
    }
    world.view.member(name("b"), None, world.now);
    assert_eq!(world.act().owned.len(), 8, "while it is calm");
    world.later(CALM);
    let plan = world.act();
    assert_eq!((plan.owned.len(), plan.take.len()), (8, adopted.len()));
    assert!(world.view.adopted().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_while_etcd_was_away_is_given_up_when_its_owner_lives_or_another_has_taken_it() {
    let (mut world, adopted) = back_with_the_shards_of_b();
    let one = adopted.first().unwrap().clone();
    world.key(one.clone(), Some("c"));
    assert!(!world.plan().owned.contains(&one));
    world.view.member(name("b"), Some(member()), world.now);
    let plan = world.plan();
    assert!(adopted.iter().all(|shard| !plan.owned.contains(shard)), "it registered anew: {plan:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_while_etcd_was_away_is_not_scanned_on_for_ever() {
    let (mut world, _) = back_with_the_shards_of_b();
    assert_eq!(world.view.wakes_at(), Some(world.now + SETTLE_MAX * 5));
    world.later(SETTLE_MAX * 5);
    assert_eq!(world.plan().owned.len(), 4);
    assert_eq!(world.view.wakes_at(), None);
}

#[tokio::test(start_paused = true)]
async fn where_all_entries_are_deleted_each_node_scans_on_until_somebody_is_registered_again() {
    let mut world = World::new(8).with(&["a", "b"]);
    world.act();
    let (before, all) = (world.owned.clone(), world.all.clone());
    for shard in &all {
        world.key(shard.clone(), None);
    }
    for gone in ["a", "b"] {
        world.view.member(name(gone), None, world.now);
    }
    world.later(CALM);
    let plan = world.plan();
    assert_eq!((plan.owned, plan.take), (before.clone(), before.iter().cloned().collect()), "and asks for its keys");
    assert_eq!(world.view.unserved(&all), all);
    world.view.member(name("b"), Some(member()), world.now);
    world.later(CALM);
    assert!(world.plan().owned.is_empty(), "the other one is registered, and has them all");
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_unserved_without_a_key_and_with_that_of_a_node_that_is_gone() {
    let mut world = World::new(3).with(&["a"]);
    let all = world.all.clone();
    world.key(all[0].clone(), Some("a"));
    world.key(all[1].clone(), Some("b"));
    assert_eq!(world.view.unserved(&all), all[1..]);
    world.view.member(name("b"), Some(member()), world.now);
    assert_eq!(world.view.unserved(&all), all[2..]);
}

#[tokio::test(start_paused = true)]
async fn a_late_shard_that_nobody_serves_is_scanned_on_for_as_long_as_that_is_so() {
    let (mut world, adopted) = back_with_the_shards_of_b();
    world.view.member(name("b"), None, world.now);
    // Nobody can take their keys: etcd takes no writes. Those of `b` are there, and it is gone.
    for _ in 0..3 {
        world.later(SETTLE_MAX * 5);
        assert!(adopted.is_subset(&world.plan().owned));
        assert!(world.view.wakes_at().is_some_and(|at| at > world.now), "it does not wake all the time");
    }
    world.view.member(name("b"), Some(member()), world.now);
    world.later(CALM);
    assert!(adopted.is_disjoint(&world.plan().owned), "its owner is there again");
}
