//! Slots for listeners to a node's events. When all are taken, a listener of the tenant that has most makes way for one of
//! a tenant that has fewer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::auth::shares::Tenant;

/// Listeners at one node.
pub(crate) const LISTENERS_MAX: usize = 128;

#[derive(Debug, Default)]
struct SlotsInner {
    /// The number of the next listener.
    next: u64,
    all: BTreeMap<u64, (Tenant, CancellationToken)>,
}

impl SlotsInner {
    /// Returns the tenant that has most slots, and how many.
    fn most(&self) -> Option<(Tenant, usize)> {
        let mut counts = HashMap::<&Tenant, usize>::new();
        for (tenant, _) in self.all.values() {
            *counts.entry(tenant).or_default() += 1;
        }
        let most = counts.into_iter().max_by(|a, b| (a.1, a.0).cmp(&(b.1, b.0)))?;
        Some((most.0.clone(), most.1))
    }

    fn count(&self, tenant: &Tenant) -> usize {
        self.all.values().filter(|(other, _)| other == tenant).count()
    }

    fn oldest(&self, tenant: &Tenant) -> Option<u64> {
        self.all.iter().find(|(_, (other, _))| other == tenant).map(|(at, _)| *at)
    }
}

/// The slots of all listeners of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerSlots(Arc<Mutex<SlotsInner>>);

/// The slot of one listener, until it is dropped.
#[derive(Debug)]
pub(crate) struct ListenerSlot {
    slots: Arc<Mutex<SlotsInner>>,
    at: u64,
    /// Cancelled when the listener has to make way.
    pub ended: CancellationToken,
}

impl ListenerSlots {
    /// Takes a slot for `tenant`. `None`: all are taken, and no tenant has two more than this one.
    pub fn admit(&self, tenant: Tenant) -> Option<ListenerSlot> {
        let mut slots = self.0.lock();
        if slots.all.len() >= LISTENERS_MAX {
            let (most, count) = slots.most()?;
            // A tenant that has one more would only swap with this one, again and again.
            if count < slots.count(&tenant) + 2 {
                return None;
            }
            let oldest = slots.oldest(&most)?;
            let (_, ended) = slots.all.remove(&oldest)?;
            ended.cancel();
        }
        let (at, ended) = (slots.next, CancellationToken::new());
        slots.next += 1;
        slots.all.insert(at, (tenant, ended.clone()));
        Some(ListenerSlot { slots: self.0.clone(), at, ended })
    }
}

impl Drop for ListenerSlot {
    fn drop(&mut self) {
        self.slots.lock().all.remove(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str) -> Tenant {
        Tenant::Token(name.into())
    }

    #[test]
    fn the_tenant_with_most_slots_makes_way_until_all_have_their_share_and_then_none_does() {
        let listeners = ListenerSlots::default();
        let greedy: Vec<_> = (0..LISTENERS_MAX).map(|_| listeners.admit(token("greedy")).unwrap()).collect();
        assert!(listeners.admit(token("greedy")).is_none(), "its own do not make way");
        let shop: Vec<_> = std::iter::from_fn(|| listeners.admit(token("shop"))).collect();
        assert_eq!(shop.len(), LISTENERS_MAX / 2);
        let ended: Vec<bool> = greedy.iter().map(|slot| slot.ended.is_cancelled()).collect();
        assert_eq!(ended, [vec![true; LISTENERS_MAX / 2], vec![false; LISTENERS_MAX / 2]].concat(), "the oldest first");
        assert!(listeners.admit(token("greedy")).is_none());
        let other = listeners.admit(token("other")).unwrap();
        assert!(shop.iter().chain(&greedy).filter(|slot| slot.ended.is_cancelled()).count() > LISTENERS_MAX / 2);
        assert!(!other.ended.is_cancelled());
        drop(greedy);
        assert!(listeners.admit(token("shop")).is_some(), "slots that were left are free");
    }

    #[test]
    fn no_tenants_swap_slots_again_and_again() {
        let (listeners, mut held) = (ListenerSlots::default(), Vec::new());
        let groups = ["a", "b", "c"].map(token);
        for _ in 0..LISTENERS_MAX {
            held.extend(groups.iter().filter_map(|group| listeners.admit(group.clone())));
        }
        let admitted = held.len();
        held.extend(groups.iter().filter_map(|group| listeners.admit(group.clone())));
        assert_eq!(held.len(), admitted);
    }
}
