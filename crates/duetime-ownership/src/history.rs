//! Keeps who had each shard before, as this node saw it since it started: in memory, bounded, for people.
//!
//! Written to by the implementations as they see changes, read by the API. Nothing is decided by it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use duetime_core::ownership::Demand;
use duetime_core::{Clock, OwnerChange, OwnerReason, PastOwners, Timestamp, TopicName};
use parking_lot::Mutex;

use crate::{OwnedChanges, ShardName};

/// Changes kept of one shard.
const SHARD_CHANGES_MAX: usize = 8;
/// Changes kept of all shards together; the oldest of all goes first. Some 100 bytes each with what they are found by,
/// so 13 MiB at most.
const CHANGES_MAX: usize = 131_072;
/// Changes written, or shards compared, under one lock.
const LOCKED_MAX: usize = 256;

/// One change as it was seen.
#[derive(Clone, Debug)]
pub(crate) struct SeenChange {
    pub shard: ShardName,
    /// The unique name of the node that has it now.
    pub owner: Option<Arc<str>>,
    /// `None`: the shard was taken, for the reason for which it was given up.
    pub reason: Option<OwnerReason>,
}

/// Keeps who had each shard before, as this node saw it since it started: in memory, bounded, for people.
#[derive(Debug)]
pub(crate) struct OwnerHistory {
    clock: Arc<dyn Clock>,
    since: Timestamp,
    changes_max: usize,
    kept: Mutex<KeptChanges>,
}

#[derive(Debug, Default)]
struct KeptChanges {
    topics: BTreeMap<TopicName, HashMap<u32, ShardPast>>,
    /// The number of each change with its shard, in order: the first is the oldest of all. Those that their shard has
    /// forgotten already are in it too, so it is what bounds the whole.
    order: VecDeque<(u64, ShardName)>,
    next: u64,
    /// The topics there were at the last demand.
    demanded: BTreeSet<TopicName>,
    has_forgotten: bool,
    /// How many changes were written or forgotten, for the tests.
    #[cfg(test)]
    steps: usize,
}

#[derive(Debug, Default)]
struct ShardPast {
    /// The oldest first.
    changes: Vec<KeptChange>,
    forgotten: bool,
}

#[derive(Debug)]
struct KeptChange {
    number: u64,
    at: Timestamp,
    owner: Option<Arc<str>>,
    reason: OwnerReason,
}

impl OwnerHistory {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::of_at_most(clock, CHANGES_MAX)
    }

    fn of_at_most(clock: Arc<dyn Clock>, changes_max: usize) -> Arc<Self> {
        let since = clock.now();
        Arc::new(Self { clock, since, changes_max, kept: Mutex::default() })
    }

    /// Keeps what was seen. Each costs one look into a map; readers get their turn in between.
    pub fn record(&self, seen: Vec<SeenChange>) {
        let at = self.clock.now();
        let mut seen = seen.into_iter();
        while seen.len() > 0 {
            let mut kept = self.kept.lock();
            for change in seen.by_ref().take(LOCKED_MAX) {
                kept.write(change, at, self.changes_max);
            }
        }
    }

    /// Keeps what differs from what was seen before: `owners` are all there are now. `lost`: the node whose lease is
    /// known to have ended meanwhile.
    pub fn compare(&self, owners: &BTreeMap<ShardName, Arc<str>>, lost: Option<&str>) {
        let mut seen = Vec::new();
        let all: Vec<(&ShardName, &Arc<str>)> = owners.iter().collect();
        for part in all.chunks(LOCKED_MAX) {
            let kept = self.kept.lock();
            for (shard, owner) in part {
                let reason = match kept.last(shard) {
                    None if kept.has_forgotten => OwnerReason::Unknown,
                    None => OwnerReason::Found,
                    Some(last) if last.owner.as_ref() == Some(*owner) => continue,
                    Some(_) => OwnerReason::Unknown,
                };
                seen.push(SeenChange { shard: (*shard).clone(), owner: Some(Arc::clone(owner)), reason: Some(reason) });
            }
        }
        let topics: Vec<TopicName> = self.kept.lock().topics.keys().cloned().collect();
        for topic in topics {
            // Of one topic: 4,096 shards at most.
            let kept = self.kept.lock();
            for (index, past) in kept.topics.get(&topic).into_iter().flatten() {
                let Some(owner) = past.changes.last().and_then(|last| last.owner.as_ref()) else { continue };
                let shard = (topic.clone(), *index);
                if !owners.contains_key(&shard) {
                    let is_lost = lost == Some(&**owner);
                    let reason = if is_lost { OwnerReason::LeaseEnded } else { OwnerReason::Unknown };
                    seen.push(SeenChange { shard, owner: None, reason: Some(reason) });
                }
            }
        }
        self.record(seen);
    }

    /// Forgets topics that are gone: one of the same name is another.
    pub fn keep(&self, demand: &Demand) {
        let there: BTreeSet<TopicName> = demand.iter().map(|(topic, _)| topic.clone()).collect();
        let mut kept = self.kept.lock();
        // Of one that this node does not know yet, others may have shards already.
        for gone in std::mem::replace(&mut kept.demanded, there.clone()).difference(&there) {
            kept.topics.remove(gone);
        }
    }

    /// What is known of one shard.
    pub fn of(&self, topic: &TopicName, index: u32) -> PastOwners {
        let kept = self.kept.lock();
        let since = Some(self.since);
        let Some(past) = kept.topics.get(topic).and_then(|shards| shards.get(&index)) else {
            return PastOwners { since, changes: Vec::new(), forgotten: kept.has_forgotten };
        };
        let shown = |change: &KeptChange| OwnerChange {
            at: change.at,
            owner: change.owner.as_deref().map(|name| crate::id_of(name).into()),
            reason: change.reason,
        };
        PastOwners { since, changes: past.changes.iter().rev().map(shown).collect(), forgotten: past.forgotten }
    }
}

impl KeptChanges {
    fn last(&self, (topic, index): &ShardName) -> Option<&KeptChange> {
        self.topics.get(topic)?.get(index)?.changes.last()
    }

    fn write(&mut self, seen: SeenChange, at: Timestamp, changes_max: usize) {
        let SeenChange { shard, owner, reason } = seen;
        let last = self.last(&shard);
        if last.is_some_and(|last| last.owner == owner) || (last.is_none() && owner.is_none()) {
            return;
        }
        let reason = reason.unwrap_or(match last {
            None if !self.has_forgotten => OwnerReason::Free,
            Some(last) if last.owner.is_none() => last.reason,
            _ => OwnerReason::Unknown,
        });
        let number = self.next;
        self.next += 1;
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let past = self.topics.entry(shard.0.clone()).or_default().entry(shard.1).or_default();
        if past.changes.len() == SHARD_CHANGES_MAX {
            past.changes.remove(0);
            past.forgotten = true;
        }
        // Most shards have one or two for good.
        past.changes.reserve_exact(1);
        past.changes.push(KeptChange { number, at, owner, reason });
        self.order.push_back((number, shard));
        if self.order.len() > changes_max {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((number, (topic, index))) = self.order.pop_front() else { return };
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let Some(shards) = self.topics.get_mut(&topic) else { return };
        let Some(past) =
            shards.get_mut(&index).filter(|past| past.changes.first().is_some_and(|one| one.number == number))
        else {
            return;
        };
        past.changes.remove(0);
        past.forgotten = true;
        self.has_forgotten = true;
        if past.changes.is_empty() {
            shards.remove(&index);
        }
    }
}

impl OwnedChanges {
    /// As what was seen of the node `name`, each taken and given up for these reasons.
    pub(crate) fn seen(
        self,
        name: &Arc<str>,
        taken: impl Fn(&ShardName) -> OwnerReason,
        given_up: OwnerReason,
    ) -> Vec<SeenChange> {
        let gone = self.given_up.into_iter().map(|shard| SeenChange { shard, owner: None, reason: Some(given_up) });
        let come = self.taken.into_iter().map(|shard| {
            let reason = Some(taken(&shard));
            SeenChange { shard, owner: Some(name.clone()), reason }
        });
        gone.chain(come).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duetime_testkit::ManualClock;

    use super::*;

    fn shard(index: u32) -> ShardName {
        (TopicName::new("orders").unwrap(), index)
    }

    fn seen(index: u32, owner: Option<&str>, reason: Option<OwnerReason>) -> SeenChange {
        SeenChange { shard: shard(index), owner: owner.map(Arc::from), reason }
    }

    fn told(history: &OwnerHistory, index: u32) -> Vec<(Option<String>, &'static str)> {
        let past = history.of(&shard(index).0, index);
        past.changes.iter().map(|one| (one.owner.as_deref().map(str::to_owned), one.reason.as_str())).collect()
    }

    fn by(owner: &str, reason: &'static str) -> (Option<String>, &'static str) {
        (Some(owner.to_owned()), reason)
    }

    fn clock() -> Arc<ManualClock> {
        ManualClock::at(Timestamp::from_millis(1_000))
    }

    #[test]
    fn a_shard_that_is_taken_after_its_owner_died_says_so_with_the_time_of_each_step() {
        let clock = clock();
        let history = OwnerHistory::new(clock.clone());
        history.compare(&[(shard(0), Arc::from("n1~00000001"))].into(), None);
        clock.advance(Duration::from_secs(5));
        history.record(vec![seen(0, None, Some(OwnerReason::LeaseEnded))]);
        clock.advance(Duration::from_secs(1));
        history.record(vec![seen(0, Some("n2~00000002"), None), seen(1, Some("n2~00000002"), None)]);
        assert_eq!(told(&history, 0), [by("n2", "lease_ended"), (None, "lease_ended"), by("n1", "found")]);
        assert_eq!(told(&history, 1), [by("n2", "free")]);
        let past = history.of(&shard(0).0, 0);
        let times: Vec<i64> = past.changes.iter().map(|one| one.at.as_millis()).collect();
        assert_eq!((times, past.since), (vec![7_000, 6_000, 1_000], Some(Timestamp::from_millis(1_000))));
    }

    #[test]
    fn what_is_reported_twice_is_kept_once_and_the_same_node_started_again_is_another() {
        let history = OwnerHistory::new(clock());
        history.record(vec![seen(0, None, Some(OwnerReason::Turn)), seen(0, Some("n1~00000001"), None)]);
        history.record(vec![seen(0, Some("n1~00000001"), None)]);
        assert_eq!(told(&history, 0), [by("n1", "free")]);
        history.compare(&[(shard(0), Arc::from("n1~0000000f"))].into(), None);
        assert_eq!(told(&history, 0), [by("n1", "unknown"), by("n1", "free")]);
    }

    #[test]
    fn what_happened_while_nobody_looked_is_unknown_unless_this_nodes_own_lease_ended() {
        let history = OwnerHistory::new(clock());
        history.compare(&(0..4).map(|n| (shard(n), Arc::from(if n < 2 { "a" } else { "b" }))).collect(), None);
        history.compare(&[(shard(0), Arc::from("a")), (shard(2), Arc::from("a"))].into(), Some("b"));
        assert_eq!(told(&history, 0), [by("a", "found")]);
        assert_eq!(told(&history, 1), [(None, "unknown"), by("a", "found")]);
        assert_eq!(told(&history, 2), [by("a", "unknown"), by("b", "found")]);
        assert_eq!(told(&history, 3), [(None, "lease_ended"), by("b", "found")]);
    }

    #[test]
    fn a_shard_keeps_its_last_changes_and_says_that_older_ones_are_forgotten() {
        let history = OwnerHistory::new(clock());
        for n in 0..SHARD_CHANGES_MAX {
            history.record(vec![seen(0, Some(&format!("n{n}")), Some(OwnerReason::Unknown))]);
        }
        assert!(!history.of(&shard(0).0, 0).forgotten);
        history.record(vec![seen(0, None, Some(OwnerReason::Drained))]);
        let past = history.of(&shard(0).0, 0);
        assert_eq!((past.changes.len(), past.forgotten), (SHARD_CHANGES_MAX, true));
        assert_eq!(told(&history, 0).last(), Some(&by("n1", "unknown")));
    }

    #[test]
    fn all_shards_together_keep_no_more_than_the_limit_and_the_oldest_goes_first() {
        let history = OwnerHistory::of_at_most(clock(), 100);
        // One shard that changes all the time, then many: no more is kept than the limit, and nothing of it is wrong.
        for n in 0..1_000 {
            history.record(vec![seen(7, Some(if n % 2 == 0 { "a" } else { "b" }), Some(OwnerReason::Unknown))]);
        }
        history.record((100..180).map(|n| seen(n, Some("a"), None)).collect());
        let kept = history.kept.lock();
        let count: usize = kept.topics.values().flat_map(HashMap::values).map(|past| past.changes.len()).sum();
        assert!(count <= 100 && kept.order.len() == 100, "{count}");
        drop(kept);
        assert_eq!(told(&history, 7).len(), SHARD_CHANGES_MAX);
        history.record((200..300).map(|n| seen(n, Some("a"), None)).collect());
        let past = history.of(&shard(7).0, 7);
        assert!(past.changes.is_empty() && past.forgotten, "{past:?}");
        history.record(vec![seen(7, Some("c"), None)]);
        assert_eq!(told(&history, 7), [by("c", "unknown")], "who had it before is forgotten");
    }

    #[test]
    fn sharing_4096_shards_anew_costs_one_step_a_change_also_when_all_is_full() {
        let history = OwnerHistory::of_at_most(clock(), 4_096);
        let each = |owner: Option<&str>| (0..4_096).map(|n| seen(n, owner, None)).collect::<Vec<_>>();
        history.record(each(Some("a")));
        let before = history.kept.lock().steps;
        history.record(each(None));
        history.record(each(Some("b")));
        let kept = history.kept.lock();
        // Each change is written once and another forgotten for it: nothing is gone through.
        assert_eq!(kept.steps - before, 2 * 2 * 4_096);
        assert_eq!(kept.order.len(), 4_096);
    }

    #[test]
    fn a_topic_that_is_gone_is_forgotten() {
        let history = OwnerHistory::new(clock());
        history.record(vec![seen(0, Some("a"), None)]);
        history.keep(&vec![(TopicName::new("orders").unwrap(), 1)]);
        assert_eq!(told(&history, 0).len(), 1);
        history.keep(&Vec::new());
        assert_eq!(history.of(&shard(0).0, 0).changes, []);
        let topics: BTreeSet<TopicName> = history.kept.lock().topics.keys().cloned().collect();
        assert!(topics.is_empty());
    }
}
