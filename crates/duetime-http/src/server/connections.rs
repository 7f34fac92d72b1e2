//! Which connections may be open: bounds over all and per address, and who makes way when they are reached.
//!
//! A new connection takes the place of one that has nothing to do: first of one that never sent a
//! request, of the address that has most of these, then of the one that has been idle longest. So one
//! whose request is on its way is not closed by a rush of silent ones from elsewhere. Where none is idle, one makes way
//! whose client has taken nothing of its answers for a while: of the address that has most connections, the one that
//! has waited longest. Where all are busy, a new one is served briefly and only its `/healthz`, so that a node under
//! attack still says that it is alive.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::peer::network;

/// Most connections that are over the bounds and still get a short answer.
const BRIEF_MAX: usize = 256;

/// A connection whose client has taken nothing of its answers for this long makes way where all are busy.
const STALL_MIN: Duration = Duration::from_secs(5);

/// Busy connections are looked through for stalled ones so often at most, where none was found.
const STALLS_EVERY: Duration = Duration::from_secs(1);

/// How many connections may be open.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    /// Over all.
    pub all: usize,
    /// From one address; of IPv6, from one network of 64 bits.
    pub per_address: usize,
}

impl ConnectionBounds {
    /// The same, but no more than so many.
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        Self { all: self.all.min(most), per_address: self.per_address.min(most) }
    }
}

impl Default for ConnectionBounds {
    fn default() -> Self {
        Self { all: 8192, per_address: 2048 }
    }
}

/// Idle connections, oldest first.
#[derive(Default)]
struct IdleConnections {
    /// Idle connections that never sent a request.
    fresh: BTreeSet<u64>,
    /// Idle connections between two requests.
    used: BTreeSet<u64>,
}

impl IdleConnections {
    fn oldest(&self) -> Option<u64> {
        self.fresh.first().or_else(|| self.used.first()).copied()
    }

    fn remove(&mut self, at: u64) {
        if !self.fresh.remove(&at) {
            self.used.remove(&at);
        }
    }
}

#[derive(Default)]
struct Address {
    count: usize,
    idle: IdleConnections,
}

/// Which addresses have how many idle connections that never sent a request, fewest first.
#[derive(Default)]
struct Fresh(BTreeSet<(usize, IpAddr)>);

impl Fresh {
    fn changed(&mut self, address: IpAddr, before: usize, after: usize) {
        if before != after {
            self.0.remove(&(before, address));
            if after > 0 {
                self.0.insert((after, address));
            }
        }
    }

    fn most(&self) -> Option<IpAddr> {
        self.0.last().map(|(_, address)| *address)
    }
}

/// Since when a connection waits for nothing but its client.
type Stall = Arc<Mutex<Option<Instant>>>;

/// A connection with a place.
struct OpenConnection {
    address: IpAddr,
    stall: Stall,
    ended: CancellationToken,
}

#[derive(Default)]
struct ConnectionsInner {
    /// Numbers connections by when they became idle.
    next: u64,
    all: usize,
    addresses: HashMap<IpAddr, Address>,
    fresh: Fresh,
    /// That wait for their next request, of all addresses, oldest first.
    used: BTreeSet<u64>,
    /// Whom the number of an idle one belongs to.
    holders: HashMap<u64, (IpAddr, CancellationToken)>,
    brief: BTreeMap<u64, CancellationToken>,
    /// Those with a place, by a number that they keep.
    open: HashMap<u64, OpenConnection>,
    /// When the busy ones are worth looking through again.
    look_at: Option<Instant>,
}

impl ConnectionsInner {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn leave(&mut self, address: IpAddr) {
        self.all -= 1;
        if let Some(entry) = self.addresses.get_mut(&address) {
            entry.count -= 1;
            if entry.count == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    fn set_idle(&mut self, address: IpAddr, fresh: bool, ended: &CancellationToken) -> u64 {
        let at = self.number();
        self.holders.insert(at, (address, ended.clone()));
        let idle = &mut self.addresses.entry(address).or_default().idle;
        if fresh {
            idle.fresh.insert(at);
            self.fresh.changed(address, idle.fresh.len() - 1, idle.fresh.len());
        } else {
            idle.used.insert(at);
            self.used.insert(at);
        }
        at
    }

    /// Takes it out of the idle ones; `None`: it had to make way before.
    fn unset_idle(&mut self, at: u64) -> Option<(IpAddr, CancellationToken)> {
        let (address, ended) = self.holders.remove(&at)?;
        self.used.remove(&at);
        if let Some(Address { idle, .. }) = self.addresses.get_mut(&address) {
            let before = idle.fresh.len();
            idle.remove(at);
            self.fresh.changed(address, before, idle.fresh.len());
        }
        Some((address, ended))
    }

    /// Ends a connection that waits for nothing but its client: of the address with most, the one that has waited
    /// longest. Whether there was one. O(connections), once a second where there is none.
    fn shed_stalled(&mut self, of: Option<IpAddr>) -> bool {
        let now = Instant::now();
        if self.look_at.is_some_and(|at| now < at) {
            return false;
        }
        let stalled = self.open.iter().filter_map(|(at, one)| {
            let since = (*one.stall.lock())?;
            let waits = now.saturating_duration_since(since) > STALL_MIN;
            let is_meant = of.is_none_or(|address| address == one.address) && !one.ended.is_cancelled();
            (waits && is_meant).then_some((self.addresses.get(&one.address).map_or(0, |entry| entry.count), since, *at))
        });
        let Some((.., at)) = stalled.max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1))) else {
            self.look_at = Some(now + STALLS_EVERY);
            return false;
        };
        let Some(OpenConnection { address, ended, .. }) = self.open.remove(&at) else { return false };
        ended.cancel();
        self.leave(address);
        true
    }

    /// Ends the oldest idle connection of `of`, or of all the oldest of the address with most that never asked. Whether
    /// there was one.
    fn make_way(&mut self, of: Option<IpAddr>) -> bool {
        let oldest = of.or_else(|| self.fresh.most()).and_then(|address| self.addresses.get(&address)?.idle.oldest());
        let any = || self.used.first().copied().filter(|_| of.is_none());
        let Some(at) = oldest.or_else(any) else { return self.shed_stalled(of) };
        let Some((address, ended)) = self.unset_idle(at) else { return false };
        ended.cancel();
        self.leave(address);
        true
    }
}

/// Which connections may be open: bounds over all and per address, and who makes way when they are reached.
#[derive(Clone)]
pub(crate) struct Connections {
    inner: Arc<Mutex<ConnectionsInner>>,
    bounds: ConnectionBounds,
}

/// What a new connection gets.
pub(crate) enum ConnectionAdmission {
    /// A place, until it is dropped.
    Place(ConnectionPermit),
    /// No place; a short answer, until then.
    Brief(Brief),
}

impl Connections {
    pub fn new(bounds: ConnectionBounds) -> Self {
        Self { inner: Arc::default(), bounds }
    }

    /// Lets a connection in.
    pub fn admit(&self, address: IpAddr) -> ConnectionAdmission {
        let address = network(address);
        let ended = CancellationToken::new();
        let mut inner = self.inner.lock();
        let of_address = inner.addresses.get(&address).map_or(0, |entry| entry.count);
        let room = (of_address < self.bounds.per_address || inner.make_way(Some(address)))
            && (inner.all < self.bounds.all || inner.make_way(None));
        if !room {
            let at = inner.number();
            inner.brief.insert(at, ended.clone());
            if inner.brief.len() > BRIEF_MAX
                && let Some((_, oldest)) = inner.brief.pop_first()
            {
                oldest.cancel();
            }
            return ConnectionAdmission::Brief(Brief { inner: self.inner.clone(), at, ended });
        }
        inner.all += 1;
        inner.addresses.entry(address).or_default().count += 1;
        let at = inner.set_idle(address, true, &ended);
        let (number, stall) = (inner.number(), Stall::default());
        inner.open.insert(number, OpenConnection { address, stall: stall.clone(), ended: ended.clone() });
        ConnectionAdmission::Place(ConnectionPermit {
            inner: self.inner.clone(),
            address,
            ended,
            number,
            stall,
            at: Mutex::new(Some(at)),
        })
    }

    /// Ends up to `count` idle connections, so that others can be opened.
    pub fn shed(&self, count: usize) {
        let mut inner = self.inner.lock();
        for _ in 0..count {
            if !inner.make_way(None) {
                return;
            }
        }
    }
}

/// A connection's place.
pub(crate) struct ConnectionPermit {
    inner: Arc<Mutex<ConnectionsInner>>,
    address: IpAddr,
    /// Cancelled when the connection has to make way.
    pub ended: CancellationToken,
    /// Its number while it is idle.
    at: Mutex<Option<u64>>,
    /// Its number among all.
    number: u64,
    stall: Stall,
}

impl ConnectionPermit {
    /// A request has begun.
    pub fn busy(&self) {
        if let Some(at) = self.at.lock().take() {
            self.inner.lock().unset_idle(at);
        }
    }

    /// It waits for nothing but its client, since then; `None`: it does not.
    pub fn stalls(&self, since: Option<Instant>) {
        *self.stall.lock() = since;
    }

    /// Nothing is under way any more.
    pub fn idle(&self) {
        let mut at = self.at.lock();
        let mut inner = self.inner.lock();
        // Who makes way does so under the same lock.
        if at.is_none() && !self.ended.is_cancelled() {
            *at = Some(inner.set_idle(self.address, false, &self.ended));
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut inner = self.inner.lock();
        inner.open.remove(&self.number);
        let counted = match self.at.get_mut().take() {
            Some(at) => inner.unset_idle(at).is_some(),
            None => !self.ended.is_cancelled(),
        };
        if counted {
            inner.leave(self.address);
        }
    }
}

/// A connection without a place.
pub(crate) struct Brief {
    inner: Arc<Mutex<ConnectionsInner>>,
    at: u64,
    /// Cancelled when the connection has to make way.
    pub ended: CancellationToken,
}

impl Drop for Brief {
    fn drop(&mut self) {
        self.inner.lock().brief.remove(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    fn place(connections: &Connections, n: u8) -> ConnectionPermit {
        match connections.admit(from(n)) {
            ConnectionAdmission::Place(place) => place,
            ConnectionAdmission::Brief(_) => panic!("no place"),
        }
    }

    #[test]
    fn who_never_asked_makes_way_first_and_who_is_busy_never() {
        let connections = Connections::new(ConnectionBounds { all: 3, per_address: 3 });
        let (busy, idle, silent) = (place(&connections, 1), place(&connections, 2), place(&connections, 3));
        busy.busy();
        idle.busy();
        idle.idle();
        let fourth = place(&connections, 4);
        assert!(silent.ended.is_cancelled() && !idle.ended.is_cancelled());
        fourth.busy();
        let fifth = place(&connections, 5);
        assert!(idle.ended.is_cancelled() && !busy.ended.is_cancelled() && !fourth.ended.is_cancelled());
        fifth.busy();
        assert!(matches!(connections.admit(from(6)), ConnectionAdmission::Brief(_)), "all are busy");
        drop((silent, idle));
        assert_eq!(connections.inner.lock().all, 3, "who made way is not counted twice");
        drop(busy);
        place(&connections, 6);
        drop((fourth, fifth));
        let inner = connections.inner.lock();
        assert_eq!((inner.all, inner.addresses.len(), inner.holders.len(), inner.brief.len()), (0, 0, 0, 0));
    }

    #[test]
    fn one_address_takes_its_own_places_only() {
        let connections = Connections::new(ConnectionBounds { all: 100, per_address: 2 });
        let other = place(&connections, 2);
        let first = place(&connections, 1);
        let held: Vec<ConnectionPermit> = (0..5).map(|_| place(&connections, 1)).collect();
        assert!(first.ended.is_cancelled() && !other.ended.is_cancelled());
        assert_eq!(held.iter().filter(|place| !place.ended.is_cancelled()).count(), 2);
        held.iter().for_each(ConnectionPermit::busy);
        assert!(matches!(connections.admit(from(1)), ConnectionAdmission::Brief(_)));
        assert_eq!(connections.inner.lock().all, 3);
        let six = |text: &str| network(text.parse().unwrap());
        assert_eq!(six("2001:db8::1"), six("2001:db8::ffff:1"));
        assert_eq!(six("::ffff:10.0.0.1"), from(1));
    }

    #[test]
    fn a_rush_from_many_addresses_closes_its_own_connections_and_not_one_whose_request_is_on_its_way() {
        let connections = Connections::new(ConnectionBounds { all: 40, per_address: 20 });
        let slow = place(&connections, 1);
        let rush: Vec<ConnectionPermit> = (0..50).flat_map(|_| 2..10).map(|n| place(&connections, n)).collect();
        assert!(!slow.ended.is_cancelled());
        assert_eq!(rush.iter().filter(|place| !place.ended.is_cancelled()).count(), 39);
        rush.iter().for_each(ConnectionPermit::busy);
        let last = place(&connections, 10);
        assert!(slow.ended.is_cancelled(), "where all others are busy it makes way");
        drop((slow, rush, last));
        let inner = connections.inner.lock();
        assert_eq!((inner.all, inner.fresh.0.len(), inner.used.len(), inner.addresses.len()), (0, 0, 0, 0));
    }

    #[test]
    fn short_answers_are_bounded_too() {
        let connections = Connections::new(ConnectionBounds { all: 0, per_address: 1 });
        let briefs: Vec<Brief> = (0..=BRIEF_MAX)
            .map(|_| match connections.admit(from(1)) {
                ConnectionAdmission::Brief(brief) => brief,
                ConnectionAdmission::Place(_) => panic!("no place is there"),
            })
            .collect();
        assert!(briefs[0].ended.is_cancelled() && !briefs[1].ended.is_cancelled());
        drop(briefs);
        assert!(connections.inner.lock().brief.is_empty());
    }
}
