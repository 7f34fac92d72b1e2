//! What tenants share of one node, so that none takes what others need: memory, waiting claims, expensive requests.
//!
//! A tenant is whoever shows a token of one name. `memory` takes a share for each request, `claims` one for each that
//! waits, and handlers whose work is large take turns ([`Shares::turn`]). Those who listen to events have places by
//! tenant too (`listeners`), and bulk plans theirs in the store (`duetime-router`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use duetime_core::shares::{may_take, most_of_one};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A tenant may hold so many times what it leaves to others.
const FACTOR: u64 = 4;

/// Memory that each tenant may hold whatever others hold: some small requests.
const MEMORY_OF_EACH: u64 = 256 << 10;

/// Claims that may wait at one node, of all tenants: one alone may have four fifths.
pub(crate) const WAITING_CLAIMS_MAX: u64 = 10_240;

/// Waiting claims that each tenant may have whatever others have.
const WAITING_CLAIMS_OF_EACH: u64 = 16;

/// Expensive requests that a node works on at once for one tenant. Others of it wait for their turn.
pub(crate) const EXPENSIVE_AT_ONCE: usize = 2;

/// Semaphores that are kept before those without a holder are looked for.
const TURNS_KEPT: usize = 64;

/// Whose use of a node is counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tenant {
    /// All who show a token of this name.
    Token(Arc<str>),
    /// All from this network who show none that is known.
    Network(Option<IpAddr>),
}

impl Tenant {
    /// How a sentence names it.
    pub fn in_words(&self) -> String {
        match self {
            Self::Token(name) => format!("token {name:?}"),
            Self::Network(_) => "this address".to_owned(),
        }
    }
}

/// Why something could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShareFault {
    /// The tenant holds its share.
    OfTenant,
    /// Others hold what it would need.
    OfAll,
}

#[derive(Debug, Default)]
struct PoolState {
    held: HashMap<Tenant, u64>,
    /// What all hold, of each tenant no more than one may take: what it holds beyond that is its own matter.
    used: u64,
}

/// An amount of which each tenant has a share.
#[derive(Debug)]
pub(crate) struct Pool {
    total: u64,
    of_each: u64,
    most: u64,
    state: Mutex<PoolState>,
}

impl Pool {
    /// `total`, of which each tenant may always take `of_each`.
    fn new(total: u64, of_each: u64) -> Self {
        Self { total, of_each, most: most_of_one(total, FACTOR), state: Mutex::default() }
    }

    fn set(&self, state: &mut PoolState, tenant: &Tenant, before: u64, after: u64) {
        state.used = state.used - before.min(self.most) + after.min(self.most);
        if after == 0 {
            state.held.remove(tenant);
        } else if let Some(held) = state.held.get_mut(tenant) {
            *held = after;
        } else {
            state.held.insert(tenant.clone(), after);
        }
    }

    /// Takes `amount`, if the tenant's share allows it.
    pub fn take(&self, tenant: &Tenant, amount: u64) -> Result<(), ShareFault> {
        let mut state = self.state.lock();
        let held = state.held.get(tenant).copied().unwrap_or_default();
        let left = self.total.saturating_sub(state.used);
        if held.saturating_add(amount) > self.of_each && !may_take(held, amount, left, FACTOR) {
            // Alone, it would have been refused too.
            let own_fault = !may_take(held, amount, self.total.saturating_sub(held), FACTOR);
            return Err(if own_fault { ShareFault::OfTenant } else { ShareFault::OfAll });
        }
        self.set(&mut state, tenant, held, held + amount);
        Ok(())
    }

    /// Counts `more` that is there already, and gives `less` back.
    pub fn change(&self, tenant: &Tenant, more: u64, less: u64) {
        if more == less {
            return;
        }
        let mut state = self.state.lock();
        let held = state.held.get(tenant).copied().unwrap_or_default();
        self.set(&mut state, tenant, held, held.saturating_add(more).saturating_sub(less));
    }

    /// What no one holds.
    pub fn left(&self) -> u64 {
        self.total.saturating_sub(self.state.lock().used)
    }

    /// The most that one tenant may hold.
    pub fn most(&self) -> u64 {
        self.most
    }
}

/// Who works on what is expensive.
#[derive(Debug, Default)]
struct Turns(Mutex<HashMap<Tenant, Weak<Semaphore>>>);

impl Turns {
    fn of(&self, tenant: &Tenant) -> Arc<Semaphore> {
        let mut all = self.0.lock();
        if let Some(semaphore) = all.get(tenant).and_then(Weak::upgrade) {
            return semaphore;
        }
        if all.len() >= TURNS_KEPT {
            all.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(EXPENSIVE_AT_ONCE));
        all.insert(tenant.clone(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[derive(Debug)]
struct SharesInner {
    memory: Pool,
    waits: Pool,
    turns: Turns,
}

/// What tenants share of one node. Clones share it.
#[derive(Clone, Debug)]
pub struct Shares(Arc<SharesInner>);

impl Default for Shares {
    fn default() -> Self {
        Self::new(512 << 20)
    }
}

impl Shares {
    /// Of a node whose requests may take `memory_bytes`.
    #[must_use]
    pub fn new(memory_bytes: u64) -> Self {
        Self(Arc::new(SharesInner {
            memory: Pool::new(memory_bytes, MEMORY_OF_EACH),
            waits: Pool::new(WAITING_CLAIMS_MAX, WAITING_CLAIMS_OF_EACH),
            turns: Turns::default(),
        }))
    }

    /// Bytes that no request holds.
    #[must_use]
    pub fn memory_left(&self) -> u64 {
        self.0.memory.left()
    }

    pub(crate) fn memory(&self) -> &Pool {
        &self.0.memory
    }

    /// A place for a claim of `tenant` that waits, until it is dropped.
    pub(crate) fn wait(&self, tenant: &Tenant) -> Result<WaitPlace, ShareFault> {
        self.0.waits.take(tenant, 1)?;
        Ok(WaitPlace { shares: self.clone(), tenant: tenant.clone() })
    }

    /// Waits until `tenant` may have another expensive request worked on: in the order of asking.
    pub(crate) async fn turn(&self, tenant: &Tenant) -> OwnedSemaphorePermit {
        self.0.turns.of(tenant).acquire_owned().await.expect("no one closes it")
    }
}

/// The place of a claim that waits.
#[derive(Debug)]
pub(crate) struct WaitPlace {
    shares: Shares,
    tenant: Tenant,
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        self.shares.0.waits.change(&self.tenant, 0, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn token(name: &str) -> Tenant {
        Tenant::Token(name.into())
    }

    /// As many units as the tenant may take.
    fn take_all(pool: &Pool, tenant: &Tenant) -> u64 {
        (0..).find(|_| pool.take(tenant, 1).is_err()).unwrap()
    }

    #[test]
    fn one_tenant_leaves_a_part_to_others_and_each_has_its_own_whatever_they_hold() {
        let pool = Pool::new(1000, 3);
        assert_eq!(take_all(&pool, &token("greedy")), 800);
        assert_eq!(pool.take(&token("greedy"), 1), Err(ShareFault::OfTenant));
        assert_eq!(take_all(&pool, &token("second")), 160);
        assert_eq!(pool.take(&token("third"), 100), Err(ShareFault::OfAll));
        // Answers that are there already are counted, and cost the others no more than one tenant may take.
        pool.change(&token("greedy"), 1_000_000, 0);
        assert_eq!((pool.left(), take_all(&pool, &token("third"))), (40, 32));
        let held: Vec<u64> = (0..20).map(|n| take_all(&pool, &token(&n.to_string()))).collect();
        assert!(held.iter().all(|held| *held >= 3), "{held:?}");
        pool.change(&token("greedy"), 0, 1_000_800);
        pool.change(&token("second"), 0, 160);
        assert!(pool.take(&token("third"), 100).is_ok());
        assert!(!pool.state.lock().held.contains_key(&token("greedy")), "who holds nothing is forgotten");
    }

    #[test]
    fn expensive_requests_of_one_tenant_wait_for_each_other_and_for_no_one_else() {
        let shares = Shares::default();
        let turn = |name: &str| shares.turn(&token(name)).now_or_never();
        let held: Vec<_> = (0..EXPENSIVE_AT_ONCE).map(|_| turn("greedy").unwrap()).collect();
        assert!(turn("greedy").is_none());
        assert!(turn("shop").is_some());
        drop(held);
        assert!(turn("greedy").is_some());
        for n in 0..10 * TURNS_KEPT {
            drop(turn(&n.to_string()));
        }
        assert!(shares.0.turns.0.lock().len() <= TURNS_KEPT);
    }

    #[test]
    fn waiting_claims_have_places_that_come_back() {
        let shares = Shares::default();
        let held: Vec<_> = std::iter::from_fn(|| shares.wait(&token("greedy")).ok()).collect();
        assert_eq!(held.len() as u64, most_of_one(WAITING_CLAIMS_MAX, FACTOR));
        assert!(shares.wait(&token("shop")).is_ok());
        drop(held);
        assert!(shares.wait(&token("greedy")).is_ok());
    }
}
