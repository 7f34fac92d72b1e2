//! Who shares the shards: makes the ownership that is configured, and gives the node's shards away
//! while its clock is wrong or the store is out of its reach.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::{Clock, ClusterNodes, Member, Ownership, ScheduleStore, StoreHealth, TopicName, Topics};
use duetime_metrics::Meters;
use duetime_ownership::{Etcd, OverdueShards, RedisPresence, RedisTickets, RoundRobin, Solo, Tickets};
use duetime_redis::Link;
use duetime_supervisor::Supervisor;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::clock::StepWatch;
use crate::config::{Config, OwnershipMode};

/// How often the clocks are compared.
const CLOCKS_EVERY: Duration = Duration::from_secs(1);
/// A node that was apart is fit again when it is nearer than this: no coming and going at the limit.
const NEAR: Duration = Duration::from_millis(1_000);

/// A store that does not answer this node for this long is out of its reach.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// How often it is then asked again.
const AGAIN_EVERY: Duration = Duration::from_millis(250);

/// How often shards that nobody scans are counted, also where nothing was heard.
const UNOWNED_EVERY: Duration = Duration::from_secs(5);

/// What ownership is made of.
#[derive(Debug)]
pub struct OwnershipDeps {
    /// This node as it presents itself.
    pub me: Member,
    /// Looked at for late shards.
    pub store: Arc<dyn ScheduleStore>,
    /// The link to Redis, if the store is one.
    pub link: Option<Arc<Link>>,
    /// This node's clock.
    pub clock: Arc<dyn Clock>,
    /// Where changes are counted.
    pub meters: Arc<Meters>,
    /// Watches its loops.
    pub supervisor: Supervisor,
}

/// Makes the configured ownership.
pub fn open(config: &Config, parts: OwnershipDeps) -> anyhow::Result<Arc<dyn Ownership>> {
    let OwnershipDeps { me, store, link, clock, meters, supervisor } = parts;
    let namespace = config.store.namespace();
    let late = OverdueShards::new(store, clock.clone());
    let tickets = |link: &Arc<Link>| -> Arc<dyn Tickets> { RedisTickets::new(link.clone(), namespace.clone()) };
    Ok(match config.ownership.mode {
        OwnershipMode::Solo => Solo::new(me, meters),
        OwnershipMode::RoundRobin => {
            let link = link.ok_or_else(|| anyhow!("round-robin ownership needs a Redis store; set store.url"))?;
            let presence = RedisPresence::new(link.clone(), &namespace);
            RoundRobin::start(me, tickets(&link), late, presence, meters, &supervisor)
        }
        OwnershipMode::Etcd => {
            let tickets = link.as_ref().map(tickets);
            let etcd = config.ownership.etcd.clone();
            Etcd::start(etcd, namespace, me, late, tickets, meters, &supervisor)
        }
    })
}

/// Reports how many shards of each topic no node scans, as far as this node sees, until `shutdown`.
pub async fn count_unowned(
    mut cluster: watch::Receiver<Arc<ClusterNodes>>,
    mut topics: watch::Receiver<Arc<Topics>>,
    sees_all: bool,
    meters: Arc<Meters>,
    shutdown: CancellationToken,
) {
    loop {
        let (fleet_now, topics_now) = (cluster.borrow_and_update().clone(), topics.borrow_and_update().clone());
        let mut scanned: HashMap<&TopicName, u32> = HashMap::new();
        fleet_now.owners.keys().for_each(|(topic, _)| *scanned.entry(topic).or_default() += 1);
        for (name, record) in topics_now.iter() {
            let scanned = scanned.get(name).copied().unwrap_or_default();
            let unowned = if sees_all { record.routing.reach().saturating_sub(scanned) } else { 0 };
            // One that this node does not run yet, or has just forgotten, is counted the next time.
            if let Some(meters) = meters.known_topic(name) {
                meters.shards_unowned.set(i64::from(unowned));
            }
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Ok(()) = cluster.changed() => {}
            Ok(()) = topics.changed() => {}
            () = tokio::time::sleep(UNOWNED_EVERY) => {}
        }
    }
}

/// Compares this node's clock with the store's (where it has one of its own), and with one that only goes
/// on, until `shutdown`. While they are too far apart, or the
/// store does not answer this node, the node takes nothing anyway; here it says so and lets others have
/// its shards.
pub async fn watch_clock(
    store: Arc<dyn StoreHealth>,
    clock: Arc<dyn Clock>,
    ownership: Arc<dyn Ownership>,
    meters: Arc<Meters>,
    has_own_clock: bool,
    shutdown: CancellationToken,
) {
    let (mut steps, alone) = (StepWatch::new(Instant::now(), clock.now()), ownership.mode() == "solo");
    let (mut is_apart, mut is_silent, mut heard) = (false, false, Instant::now());
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(if is_silent { AGAIN_EVERY } else { CLOCKS_EVERY }) => {}
        }
        meters.ownership_up(ownership.mode(), ownership.issue().is_none());
        if let Some(step_ms) = steps.look(Instant::now(), clock.now()) {
            let off_ms = steps.off_ms();
            warn!(step_ms, off_ms, "this machine's clock was set; messages fall due by it, set it by NTP");
        }
        let Ok(apart_ms) = store.clock_skew_ms(&*clock).await else {
            if !is_silent && heard.elapsed() > SILENT_MAX {
                is_silent = true;
                match alone {
                    true => warn!("the store does not answer, nothing is delivered until it does"),
                    false => warn!("the store does not answer this node, its shards go to others that it answers"),
                }
                ownership.set_unhealthy(Some("does not reach the store".to_owned())).await;
            }
            continue;
        };
        heard = Instant::now();
        // A store without a clock of its own has the machine's; one with several reports the worst by itself.
        if !has_own_clock {
            meters.store_clock_skew(-steps.off_ms());
        }
        let apart = Duration::from_millis(apart_ms.unsigned_abs());
        if std::mem::take(&mut is_silent) {
            info!("the store answers this node again, it takes its share");
            if !is_apart {
                ownership.set_unhealthy(None).await;
            }
        }
        if !is_apart && apart > CLOCK_SKEW_MAX {
            is_apart = true;
            let then = if alone { "nothing is delivered" } else { "its shards go to others" };
            error!(apart_ms, "this node's clock and the store's are apart, {then}; set both by NTP");
            let (ms, side) = (apart_ms.unsigned_abs(), if apart_ms < 0 { "ahead of" } else { "behind" });
            ownership.set_unhealthy(Some(format!("clock is {ms} ms {side} the store's; set both by NTP"))).await;
        } else if is_apart && apart < NEAR {
            is_apart = false;
            info!(apart_ms, "clocks agree again, this node takes its share");
            ownership.set_unhealthy(None).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::{ChangeId, ShardCount, Timestamp, TopicConfig, TopicRecord};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shards_that_nobody_scans_are_counted_where_that_can_be_seen() {
        let (name, meters) = (TopicName::new("orders").unwrap(), Arc::new(Meters::new()));
        let config = TopicConfig { shards: ShardCount::Fixed(4), ..TopicConfig::default() };
        let record = TopicRecord::new(name.clone(), config, 1, ChangeId(1), Timestamp::from_millis(0));
        let topics = Topics::from([(name.clone(), Arc::new(record))]);
        let (_keep, topics) = watch::channel(Arc::new(topics));
        let owned_by = |shards: u32| ClusterNodes {
            owners: (0..shards).map(|shard| ((name.clone(), shard), Arc::from("a"))).collect(),
            ..ClusterNodes::default()
        };
        let (cluster, seen) = watch::channel(Arc::new(owned_by(1)));
        let unowned = &meters.topic(&name).shards_unowned;
        let stop = CancellationToken::new();
        let counting = tokio::spawn(count_unowned(seen.clone(), topics.clone(), true, meters.clone(), stop.clone()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(unowned.get(), 3);
        cluster.send_replace(Arc::new(owned_by(4)));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(unowned.get(), 0);
        stop.cancel();
        counting.await.unwrap();
        cluster.send_replace(Arc::new(owned_by(1)));
        let stop = CancellationToken::new();
        let counting = tokio::spawn(count_unowned(seen, topics, false, meters.clone(), stop.clone()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(unowned.get(), 0, "in round-robin a node sees its own only");
        stop.cancel();
        counting.await.unwrap();
    }
}
