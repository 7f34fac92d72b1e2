//! The end of a world: everything comes to rest, and what happened is judged.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use duetime_core::resize_store::{Inspected, Scanned};
use duetime_core::{
    Clock as _, MessageState, ResizeStore as _, ScheduleStore as _, Shard, TopicRecord, TopicStore as _,
};
use duetime_store_redis::RedisStore;
use duetime_testkit::at_home::MessagesAtHome as _;
use duetime_testkit::history::{Event, FinalState, Invariant, Left, Rules, Violation, What, check, digest};

use crate::clients::Shared;
use crate::consumers::ATTEMPTS_MAX;
use crate::faults::ALL_AHEAD_MS;
use crate::world::{ORDERS, Story, VISIBILITY, VISIBILITY_BEFORE, World, orders};

/// Longest virtual time of a world after its clients have ended: clocks that were all ahead put things off.
const END_MAX: Duration = Duration::from_secs(900);
/// What is further ahead is never due in a world.
const NEAR: Duration = Duration::from_secs(50_000);

/// What a page of a scan has at most.
const PAGE: usize = 1_000;

async fn records(observer: &RedisStore) -> Vec<TopicRecord> {
    let mut all = observer.topics().await.expect("the observer is answered");
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

async fn inspect(observer: &RedisStore, record: &TopicRecord, index: u32) -> Option<Inspected> {
    let found = observer.inspect(&record.name, index..index + 1).await;
    found.expect("the observer is answered").pop().flatten()
}

async fn scan(observer: &RedisStore, shard: &Shard) -> Vec<Scanned> {
    let (mut found, mut from) = (Vec::new(), None);
    loop {
        let page = observer.scan(shard, from.as_ref(), PAGE).await.expect("the observer is answered");
        found.extend(page.found);
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    found.sort_by(|one, other| one.id.cmp(&other.id));
    found.dedup();
    found
}

/// Whether every message is in its home, and none on its way.
async fn is_at_home(observer: &RedisStore, record: &TopicRecord) -> bool {
    for index in 0..record.max_shards_ever() {
        let Some(inspected) = inspect(observer, record, index).await else { continue };
        let shard = inspected.routing.shard(&record.name, index);
        let home = |one: &Scanned| record.routing.home(&record.name, &one.id).index == index;
        if inspected.outbox.is_some() || !scan(observer, &shard).await.iter().all(home) {
            return false;
        }
    }
    true
}

/// Whether nothing is claimed, due or on its way between shards, and the shard count is the requested one.
pub async fn is_at_rest(world: &World, observer: &RedisStore, last: u32) -> bool {
    let near = world.clock.now().plus(NEAR);
    let all = records(observer).await;
    let mut calm = !all.is_empty();
    for record in &all {
        calm &= !record.routing.is_moving() && record.desired.is_none();
        calm &= record.name != orders() || record.routing.shards == last;
        let shards: Vec<Shard> = record.routing.all(&record.name).collect();
        let counts = observer.counts(&shards, near).await.expect("the observer is answered");
        calm &= counts.iter().flatten().all(|survey| survey.in_flight == 0 && survey.due == 0);
        // What a failover brought back is found by the scrubber.
        calm = calm && (!world.trouble.failovers || is_at_home(observer, record).await);
    }
    calm
}

/// Waits until the world is at rest.
pub async fn comes_to_rest(world: &World, observer: &RedisStore, last: u32) {
    let rest = async {
        while !is_at_rest(world, observer, last).await {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let ended = tokio::time::timeout(END_MAX, rest).await;
    assert!(ended.is_ok(), "the world does not come to rest: {:?}", records(observer).await);
}

/// Everything that is anywhere, and the check that it is at home and nothing is on its way (I11).
pub async fn look(observer: &RedisStore, shared: &Shared) -> FinalState {
    let mut left = Vec::new();
    for record in records(observer).await {
        let topic = &record.name;
        for index in 0..record.max_shards_ever() {
            let Some(inspected) = inspect(observer, &record, index).await else { continue };
            assert_eq!(inspected.outbox, None, "shard {index} of {topic} has messages on their way");
            let shard = inspected.routing.shard(topic, index);
            for found in scan(observer, &shard).await {
                assert_eq!(record.routing.home(topic, &found.id).index, index, "{} is not at home", found.id);
                let message = observer.get(&shard, std::slice::from_ref(&found.id)).await;
                let message = message.expect("the observer is answered").remove(0).expect("it was just seen");
                let due = shared.due.lock().get(&(topic.clone(), found.id.clone())).copied();
                let dead = found.state == MessageState::Dead;
                if let Some(due) = due.filter(|_| !dead) {
                    let is = message.due_at.as_millis();
                    assert_eq!(is, due, "I15: {topic}/{}: its due time is not the last that was answered", found.id);
                }
                left.push(Left {
                    topic: topic.to_string(),
                    id: found.id.to_string(),
                    state: found.state.as_str().to_owned(),
                    payload: digest(&message.payload),
                    reason: message.death.filter(|_| dead).map(|death| death.reason),
                });
            }
        }
    }
    FinalState { left, counts: None }
}

/// By how much a delivery was early, as the checker reports it.
fn early_ms(violation: &Violation) -> Option<i64> {
    violation.says.strip_suffix(" ms early")?.rsplit(' ').next()?.parse().ok()
}

/// Whether a delivery was early because every clock was ahead of the true time, and by no more than they were.
fn is_excused(violation: &Violation, shared: &Shared) -> bool {
    let early = matches!(violation.invariant, Invariant::I2 | Invariant::I5);
    let handed = |event: &&Event| matches!(event.what, What::Handed { .. });
    let handed = violation.witness.iter().rev().find(handed);
    early
        && early_ms(violation).is_some_and(|ms| ms <= ALL_AHEAD_MS)
        && handed.is_some_and(|event| shared.excused.lock().contains(&(event.id.clone(), event.at_ms)))
}

/// Whether faults and what they explain cover the whole history.
fn is_all_through(events: &[Event], rules: Rules) -> bool {
    let mut covered_to = events.first().map_or(0, |event| event.at_ms);
    for (n, event) in events.iter().enumerate() {
        if event.at_ms > covered_to {
            return false;
        }
        if let What::FaultBegins(fault) = &event.what {
            let end = events[n..].iter().find(|later| later.what == What::FaultEnds(*fault));
            covered_to = covered_to.max(end.map_or(i64::MAX, |end| end.at_ms + rules.aftermath_ms));
        }
    }
    true
}

pub async fn judge(world: &World, observer: &RedisStore, shared: &Shared) -> Story {
    let left = look(observer, shared).await;
    // A claim whose ack a failover undid runs out when it would have, also if claims are shorter by now.
    let longest = if world.trouble.lowers && world.trouble.failovers { VISIBILITY_BEFORE } else { VISIBILITY };
    let aftermath = longest + VISIBILITY + Duration::from_secs(2);
    let rules =
        Rules { attempts_max: ATTEMPTS_MAX, aftermath_ms: i64::try_from(aftermath.as_millis()).expect("short") };
    let events = world.history.events();
    let mut verdict = check(&events, &left, rules);
    verdict.violations.retain(|violation| !is_excused(violation, shared));
    assert!(verdict.is_good(), "{verdict}");
    let effects = duetime_testkit::history::check_effects(&events, &left);
    assert!(effects.is_empty(), "{}", effects[0].says);
    assert_eq!(world.witness.passed(), None, "I20: the bound of what is in flight is kept");
    let emptied = world.witness.emptied();
    assert!(emptied.is_empty(), "I17: emptied while they held messages: {emptied:?}");
    for (id, holds) in &*shared.holds.lock() {
        let is = left.left.iter().find(|left| left.topic == ORDERS && left.id == id.as_str()).map(|left| left.payload);
        assert_eq!(is, *holds, "I15: {id} is not what was answered after a request that was given up");
    }
    let mut lives: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    left.left.iter().for_each(|left| *lives.entry((&left.topic, &left.id)).or_default() += 1);
    assert!(lives.values().all(|lives| *lives == 1), "an id lives twice");
    let mut print = DefaultHasher::new();
    (world.history.lines(), world.trace.print()).hash(&mut print);
    let changes =
        records(observer).await.iter().map(|record| record.routing.epoch % duetime_core::routing::LIFE - 1).sum();
    Story {
        events: events.len(),
        print: print.finish(),
        accepted: verdict.accepted,
        changes,
        explained: verdict.explained.len(),
        in_flight: verdict.in_flight,
        all_through: is_all_through(&events, rules),
    }
}
