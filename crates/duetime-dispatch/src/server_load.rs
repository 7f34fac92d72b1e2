//! Counts claims in progress at each server of the store, so that a slow server holds up no more than its share.
//!
//! Upstream: `schedule`, which takes the shards that are due. At a store of one server only the number of claims in
//! progress is limited.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use duetime_core::ServerId;
use tokio::time::Instant;

/// A server with claims in progress that has answered none for this long is slow: the others are asked first.
pub(crate) const SLOW_AFTER: Duration = Duration::from_millis(20);
/// Most claims in progress at an unresponsive server: one shows when it is back, and costs little.
const CLAIMS_OF_UNRESPONSIVE: usize = 1;

/// What claims may take at one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Most claims in progress at the server.
    pub(crate) claims: usize,
    /// Permits of all servers together. Each server may hold its part of them, but at least one.
    pub(crate) permits: usize,
    /// True if slow and unresponsive servers are asked too, after the others.
    pub(crate) patient: bool,
}

impl Bounds {
    /// Bounds of a caller that needs no permits.
    pub(crate) fn claims(claims: usize) -> Self {
        Self { claims, permits: usize::MAX, patient: true }
    }
}

/// Claims in progress at one server, and the permits that they hold.
#[derive(Debug)]
struct ServerLoad {
    claims: usize,
    permits: usize,
    /// When the server last answered, or was asked after no claim was in progress.
    since: Instant,
}

/// Claims in progress at each server of the store.
#[derive(Debug, Default)]
pub(crate) struct ServerLoads {
    loads: HashMap<ServerId, ServerLoad>,
    unresponsive: BTreeSet<ServerId>,
    /// How many servers hold the owned shards.
    count: usize,
}

/// Whether a server may be asked for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerReadiness {
    /// The server may be asked.
    Now,
    /// The server is slow: prefer others.
    AfterOthers,
    /// The server has as many claims in progress, or permits, as it may.
    Wait,
}

impl ServerLoads {
    pub(crate) fn set_count(&mut self, count: usize) {
        self.count = count;
    }

    /// How many servers hold the owned shards; at least one.
    pub(crate) fn count(&self) -> usize {
        self.count.max(1)
    }

    /// Permits that one server may hold.
    fn share(&self, bounds: Bounds) -> usize {
        (bounds.permits / self.count()).max(1)
    }

    /// Returns whether `server` may be asked for a claim.
    pub(crate) fn readiness(&self, server: ServerId, bounds: Bounds) -> ServerReadiness {
        let unresponsive = self.unresponsive.contains(&server);
        let load = self.loads.get(&server);
        let claims = if unresponsive { CLAIMS_OF_UNRESPONSIVE } else { bounds.claims };
        if load.is_some_and(|load| load.claims >= claims || load.permits >= self.share(bounds)) {
            return ServerReadiness::Wait;
        }
        let is_slow = self.count() > 1 && load.is_some_and(|load| load.since.elapsed() >= SLOW_AFTER);
        match unresponsive || is_slow {
            false => ServerReadiness::Now,
            true if bounds.patient => ServerReadiness::AfterOthers,
            true => ServerReadiness::Wait,
        }
    }

    /// Returns how many permits a claim at `server` may reserve.
    pub(crate) fn permits_left(&self, server: ServerId, bounds: Bounds) -> usize {
        let held = self.loads.get(&server).map_or(0, |load| load.permits);
        self.share(bounds).saturating_sub(held)
    }

    /// Counts a claim that is sent to `server`.
    pub(crate) fn begins(&mut self, server: ServerId) {
        let fresh = || ServerLoad { claims: 0, permits: 0, since: Instant::now() };
        self.loads.entry(server).or_insert_with(fresh).claims += 1;
    }

    /// Replaces the `before` permits of a claim at `server` by `permits`.
    pub(crate) fn reserves(&mut self, server: ServerId, before: usize, permits: usize) {
        if let Some(load) = self.loads.get_mut(&server) {
            load.permits = (load.permits + permits).saturating_sub(before);
        }
    }

    /// Ends a claim; `answered`: the server replied.
    pub(crate) fn ends(&mut self, server: ServerId, permits: usize, answered: bool) {
        if answered {
            self.unresponsive.remove(&server);
        }
        let Some(load) = self.loads.get_mut(&server) else { return };
        load.claims = load.claims.saturating_sub(1);
        load.permits = load.permits.saturating_sub(permits);
        if answered {
            load.since = Instant::now();
        }
        if load.claims == 0 {
            self.loads.remove(&server);
        }
    }

    /// Records whether `server` is unresponsive, as a poll or a claim found. Returns true on change. The only server of a
    /// store never counts as unresponsive: nothing is gained by leaving it out.
    pub(crate) fn set_unresponsive(&mut self, server: ServerId, unresponsive: bool) -> bool {
        if unresponsive && self.count() > 1 {
            self.unresponsive.insert(server)
        } else {
            self.unresponsive.remove(&server)
        }
    }

    /// Forgets unresponsive servers that hold no owned shard any more.
    pub(crate) fn keep(&mut self, servers: &BTreeSet<ServerId>) {
        self.unresponsive.retain(|server| servers.contains(server));
        self.set_count(servers.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Bounds = Bounds { claims: 8, permits: 64, patient: true };

    fn two() -> ServerLoads {
        let mut loads = ServerLoads::default();
        loads.set_count(2);
        loads
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_holds_no_more_than_its_part_of_the_permits() {
        let mut loads = two();
        assert_eq!(loads.permits_left(ServerId(1), ALL), 32);
        loads.begins(ServerId(1));
        loads.reserves(ServerId(1), 0, 32);
        assert_eq!(
            (loads.readiness(ServerId(1), ALL), loads.readiness(ServerId(2), ALL)),
            (ServerReadiness::Wait, ServerReadiness::Now)
        );
        loads.ends(ServerId(1), 32, true);
        assert_eq!(
            (loads.readiness(ServerId(1), ALL), loads.permits_left(ServerId(1), ALL)),
            (ServerReadiness::Now, 32)
        );
        let few = Bounds { permits: 1, ..ALL };
        assert_eq!(
            (loads.permits_left(ServerId(1), few), loads.permits_left(ServerId(2), few)),
            (1, 1),
            "at least one each"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_is_asked_after_the_others_and_an_unresponsive_one_once_at_a_time() {
        let mut loads = two();
        loads.begins(ServerId(1));
        assert_eq!(loads.readiness(ServerId(1), ALL), ServerReadiness::Now);
        tokio::time::advance(SLOW_AFTER).await;
        assert_eq!(loads.readiness(ServerId(1), ALL), ServerReadiness::AfterOthers);
        assert!(loads.set_unresponsive(ServerId(1), true) && !loads.set_unresponsive(ServerId(1), true));
        assert_eq!(loads.readiness(ServerId(1), ALL), ServerReadiness::Wait);
        loads.ends(ServerId(1), 0, false);
        assert_eq!(loads.readiness(ServerId(1), ALL), ServerReadiness::AfterOthers);
        loads.begins(ServerId(1));
        loads.ends(ServerId(1), 0, true);
        assert_eq!(loads.readiness(ServerId(1), ALL), ServerReadiness::Now, "any answer counts");
    }

    #[tokio::test(start_paused = true)]
    async fn the_only_server_is_never_left_out() {
        let mut loads = ServerLoads::default();
        assert!(!loads.set_unresponsive(ServerId(1), true));
        loads.begins(ServerId(1));
        tokio::time::advance(SLOW_AFTER * 10).await;
        assert_eq!(loads.readiness(ServerId(1), ALL), ServerReadiness::Now);
    }
}
