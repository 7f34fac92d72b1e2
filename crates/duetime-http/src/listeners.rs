//! Who may listen to a node's events: so many at a time, and who has most makes way for who has fewer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::shares::Tenant;

/// Listeners at one node.
pub(crate) const LISTENERS_MAX: usize = 128;

#[derive(Debug, Default)]
struct PlacesInner {
    /// Numbers listeners in the order in which they came.
    next: u64,
    all: BTreeMap<u64, (Tenant, CancellationToken)>,
}

impl PlacesInner {
    /// Who has most, and how many.
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

/// The places of those who listen.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerPlaces(Arc<Mutex<PlacesInner>>);

/// The place of one who listens, until it is dropped.
#[derive(Debug)]
pub(crate) struct ListenerPlace {
    places: Arc<Mutex<PlacesInner>>,
    at: u64,
    /// Cancelled when it has to make way.
    pub ended: CancellationToken,
}

impl ListenerPlaces {
    /// A place for `tenant`; `None`: all are taken, and nobody has two more than it has.
    pub fn admit(&self, tenant: Tenant) -> Option<ListenerPlace> {
        let mut places = self.0.lock();
        if places.all.len() >= LISTENERS_MAX {
            let (most, count) = places.most()?;
            // Who has one more would only change places with it, again and again.
            if count < places.count(&tenant) + 2 {
                return None;
            }
            let oldest = places.oldest(&most)?;
            let (_, ended) = places.all.remove(&oldest)?;
            ended.cancel();
        }
        let (at, ended) = (places.next, CancellationToken::new());
        places.next += 1;
        places.all.insert(at, (tenant, ended.clone()));
        Some(ListenerPlace { places: self.0.clone(), at, ended })
    }
}

impl Drop for ListenerPlace {
    fn drop(&mut self) {
        self.places.lock().all.remove(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str) -> Tenant {
        Tenant::Token(name.into())
    }

    #[test]
    fn who_has_most_makes_way_until_all_have_their_share_and_then_nobody_does() {
        let listeners = ListenerPlaces::default();
        let greedy: Vec<_> = (0..LISTENERS_MAX).map(|_| listeners.admit(token("greedy")).unwrap()).collect();
        assert!(listeners.admit(token("greedy")).is_none(), "its own do not make way");
        let shop: Vec<_> = std::iter::from_fn(|| listeners.admit(token("shop"))).collect();
        assert_eq!(shop.len(), LISTENERS_MAX / 2);
        let ended: Vec<bool> = greedy.iter().map(|place| place.ended.is_cancelled()).collect();
        assert_eq!(ended, [vec![true; LISTENERS_MAX / 2], vec![false; LISTENERS_MAX / 2]].concat(), "the oldest first");
        assert!(listeners.admit(token("greedy")).is_none());
        let other = listeners.admit(token("other")).unwrap();
        assert!(shop.iter().chain(&greedy).filter(|place| place.ended.is_cancelled()).count() > LISTENERS_MAX / 2);
        assert!(!other.ended.is_cancelled());
        drop(greedy);
        assert!(listeners.admit(token("shop")).is_some(), "places that were left are free");
    }

    #[test]
    fn nobody_changes_places_with_others_again_and_again() {
        let (listeners, mut held) = (ListenerPlaces::default(), Vec::new());
        let groups = ["a", "b", "c"].map(token);
        for _ in 0..LISTENERS_MAX {
            held.extend(groups.iter().filter_map(|group| listeners.admit(group.clone())));
        }
        let admitted = held.len();
        held.extend(groups.iter().filter_map(|group| listeners.admit(group.clone())));
        assert_eq!(held.len(), admitted);
    }
}
