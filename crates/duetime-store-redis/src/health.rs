//! Watches what the servers say about themselves: whether they may evict, keep what they are given on their
//! disks, and have the replicas that are asked for.
//!
//! What is found is reported in the log, in a metric and by `/readyz` when it comes and when it goes. The node serves on:
//! it is one master of several, and all nodes see the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_metrics::{Meters, StoreIssue};
use duetime_redis::{ClockSkews, Link, LinkError, MasterFacts};
use parking_lot::Mutex;
use tracing::{error, info, warn};

use crate::config::Durability;

/// How often every master is asked.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Longest wait for all of them.
const LOOK_FOR: Duration = Duration::from_secs(3);

/// What is wrong with one master: the kind, and which it is.
type NamedIssue = (StoreIssue, String);

/// What is known to be wrong.
#[derive(Debug, Default)]
pub(crate) struct ServerHealth {
    /// With what to do about each.
    issues: Mutex<BTreeMap<NamedIssue, String>>,
    /// The master whose clock alone is wrong.
    wrong_clock: Mutex<Option<String>>,
    /// The masters whose bytes are shown.
    shown: Mutex<BTreeSet<String>>,
}

/// What the store is asked to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) durability: Durability,
    pub(crate) sentinels: bool,
}

/// What is wrong with one master, and what to do.
fn judge(name: &str, facts: &MasterFacts, wanted: Wanted) -> Vec<(StoreIssue, String)> {
    let mut found = Vec::new();
    if !matches!(facts.policy.as_str(), "" | "noeviction") {
        let policy = &facts.policy;
        let text = format!(
            "redis at {name} may evict messages: maxmemory-policy is {policy}; set it: redis-cli CONFIG SET \
             maxmemory-policy noeviction, and in redis.conf"
        );
        found.push((StoreIssue::Eviction, text));
    }
    if !facts.disk.is_empty() {
        let why = &facts.disk;
        let text = format!(
            "redis at {name} does not keep what it is given: {why}; see its log, free its disk, and the next write or \
             snapshot fixes it"
        );
        found.push((StoreIssue::Disk, text));
    }
    let asked = wanted.durability.replicas();
    if facts.replicas < u32::from(asked) {
        let text = format!(
            "redis at {name} has {} of the {asked} replicas that store.durability asks for; until they follow, answers \
             say how many have it, and a failover can lose what none has",
            facts.replicas
        );
        found.push((StoreIssue::Replicas, text));
    }
    if wanted.sentinels && !facts.guarded {
        found.push((StoreIssue::Unguarded, unguarded(name)));
    }
    found
}

fn unguarded(name: &str) -> String {
    format!(
        "redis at {name} takes writes without a replica: when it is cut off from its sentinels, what it acknowledges is \
         lost; set it on every server: redis-cli CONFIG SET min-replicas-to-write 1, and in redis.conf, with \
         min-replicas-max-lag 10"
    )
}

/// Whether messages may be lost that were acknowledged as safe.
fn is_danger(kind: StoreIssue) -> bool {
    matches!(kind, StoreIssue::Eviction | StoreIssue::Disk)
}

impl ServerHealth {
    /// Refuses a primary behind Sentinel that goes on alone where replicas were asked for; else it is reported.
    pub(crate) async fn check(link: &Link, wanted: Wanted) -> Result<(), LinkError> {
        if !wanted.sentinels {
            return Ok(());
        }
        for (name, facts) in link.facts().await? {
            match facts {
                Ok(facts) if !facts.guarded && wanted.durability.replicas() > 0 => {
                    return Err(LinkError::Setup(unguarded(&name)));
                }
                Ok(_) => {}
                Err(error) => warn!(server = name, %error, "cannot ask redis for min-replicas-to-write"),
            }
        }
        Ok(())
    }

    /// Looks again and again; ends when aborted.
    pub(crate) async fn watch(self: Arc<Self>, link: Arc<Link>, wanted: Wanted, meters: Arc<Meters>) {
        loop {
            // That it cannot be reached is reported by whoever needs it.
            if let Ok(Ok(all)) = tokio::time::timeout(LOOK_FOR, link.facts()).await {
                self.take(&all, wanted, &meters);
                self.show_bytes(&all, &meters);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn show_bytes(&self, all: &[(String, Result<MasterFacts, LinkError>)], meters: &Meters) {
        for (name, facts) in all {
            if let Ok(facts) = facts {
                meters.store_bytes(name, facts.used_bytes, facts.limit_bytes);
            }
        }
        let present: BTreeSet<String> = all.iter().map(|(name, _)| name.clone()).collect();
        let mut shown = self.shown.lock();
        shown.difference(&present).for_each(|gone| meters.forget_store_bytes(gone));
        *shown = present;
    }

    fn take(&self, all: &[(String, Result<MasterFacts, LinkError>)], wanted: Wanted, meters: &Meters) {
        let mut known = self.issues.lock();
        let mut present = BTreeMap::new();
        for (name, facts) in all {
            match facts {
                Ok(facts) => {
                    present.extend(
                        judge(name, facts, wanted).into_iter().map(|(kind, text)| ((kind, name.clone()), text)),
                    );
                }
                // What is not known to have ended goes on.
                Err(_) => {
                    let of_it = known.iter().filter(|((_, of), _)| of == name);
                    present.extend(of_it.map(|(named, text)| (named.clone(), text.clone())));
                }
            }
        }
        for (named, text) in present.iter().filter(|(named, _)| !known.contains_key(named)) {
            let (kind, server) = (named.0.as_str(), &named.1);
            if is_danger(named.0) {
                error!(kind, %server, "messages are in danger: {text}");
            } else {
                warn!(kind, %server, "{text}");
            }
        }
        for (kind, server) in known.keys().filter(|named| !present.contains_key(named)) {
            info!(kind = kind.as_str(), %server, "this issue of redis is over");
        }
        for (kind, _) in StoreIssue::ALL {
            meters.store_issue(kind, present.keys().filter(|(of, _)| *of == kind).count());
        }
        *known = present;
    }

    /// Reports a master whose clock is wrong while another's is not; where all are, it is this node's.
    pub(crate) fn one_clock(&self, apart: &ClockSkews) {
        let (most, worst_ms) = (CLOCK_SKEW_MAX.as_millis(), apart.worst_ms);
        let alone = u128::from(worst_ms.unsigned_abs()) > most && u128::from(apart.least_ms.unsigned_abs()) <= most;
        let mut known = self.wrong_clock.lock();
        let wrong = alone.then(|| apart.worst.clone());
        if *known == wrong {
            return;
        }
        match (&wrong, known.as_ref()) {
            (Some(server), _) => error!(
                server,
                worst_ms, "the clock of one redis is wrong, nothing is claimed from its shards; set it by NTP"
            ),
            (None, Some(server)) => info!(server, "the clock of this redis agrees with the others again"),
            (None, None) => {}
        }
        *known = wrong;
    }

    /// What is wrong with masters, a sentence each.
    pub(crate) fn issues(&self) -> Vec<String> {
        self.issues.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> MasterFacts {
        MasterFacts { policy: "noeviction".to_owned(), replicas: 1, guarded: true, ..MasterFacts::default() }
    }

    #[test]
    fn the_bytes_of_each_master_are_shown_and_those_of_a_former_one_are_not() {
        let (health, meters) = (ServerHealth::default(), Meters::new());
        let facts = MasterFacts { used_bytes: 7, limit_bytes: Some(9), ..well() };
        health.show_bytes(&[("a:1".to_owned(), Ok(facts))], &meters);
        let shown = meters.render();
        assert!(shown.contains("duetime_store_used_bytes{server=\"a:1\"} 7"), "{shown}");
        assert!(shown.contains("duetime_store_limit_bytes{server=\"a:1\"} 9"), "{shown}");
        health.show_bytes(&[("b:1".to_owned(), Ok(well()))], &meters);
        assert!(!meters.render().contains("server=\"a:1\""));
    }

    #[test]
    fn what_is_wrong_with_a_master_is_said_until_it_is_over() {
        let wanted = Wanted { durability: Durability::Replicas(1), sentinels: true };
        let (health, meters) = (ServerHealth::default(), Meters::new());
        let told = |facts: MasterFacts| vec![("a:1".to_owned(), Ok(facts))];
        health.take(&told(well()), wanted, &meters);
        assert!(health.issues().is_empty());
        health.take(&told(MasterFacts { replicas: 0, guarded: false, ..well() }), wanted, &meters);
        assert_eq!(health.issues().len(), 2, "{:?}", health.issues());
        assert!(meters.render().contains("duetime_store_issues{kind=\"replicas\"} 1"));
        assert!(meters.render().contains("duetime_store_issues{kind=\"unguarded\"} 1"));
        health.take(&told(MasterFacts { policy: "allkeys-lru".to_owned(), ..well() }), wanted, &meters);
        let why = health.issues().join("; ");
        assert!(why.contains("a:1") && why.contains("CONFIG SET maxmemory-policy noeviction"), "{why}");
        let silent = vec![("a:1".to_owned(), Err(LinkError::Unavailable("silent".to_owned())))];
        health.take(&silent, wanted, &meters);
        assert_eq!(health.issues().len(), 1, "a silent server is not well because of its silence");
        health.take(&told(MasterFacts { disk: "writing failed".to_owned(), ..well() }), wanted, &meters);
        assert!(health.issues()[0].contains("writing failed"));
        health.take(&told(well()), wanted, &meters);
        assert!(health.issues().is_empty());
        assert!(meters.render().contains("duetime_store_issues{kind=\"eviction\"} 0"));
    }
}
