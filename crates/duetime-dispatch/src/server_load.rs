//! Claims under way by server, so that one that does not answer holds up no more than its share.
//!
//! Upstream: `schedule`, which takes the shards that are due. A store of one server has one place, and
//! nothing here changes what is claimed from it but the number of claims under way.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use duetime_core::Place;
use tokio::time::Instant;

/// A server that has answered no claim for this long, with claims under way, is asked after all others.
pub(crate) const HESITATES: Duration = Duration::from_millis(20);
/// Claims under way at a server that polls or claims found silent: it shows when it is back, and costs little.
const CLAIMS_OF_SILENT: usize = 1;

/// What claims may take at one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Most claims under way at it.
    pub(crate) claims: usize,
    /// Permits of all servers together. Each may hold its part of them, but at least one.
    pub(crate) permits: usize,
    /// Servers that hesitate or are silent are asked too, after the others.
    pub(crate) patient: bool,
}

impl Bounds {
    /// For who needs no permits.
    pub(crate) fn claims(claims: usize) -> Self {
        Self { claims, permits: usize::MAX, patient: true }
    }
}

#[derive(Debug)]
struct UnderWay {
    claims: usize,
    permits: usize,
    /// When it last answered, or was asked after a rest.
    since: Instant,
}

/// Claims under way by server, so that one that does not answer holds up no more than its share.
#[derive(Debug, Default)]
pub(crate) struct Places {
    under_way: HashMap<Place, UnderWay>,
    silent: BTreeSet<Place>,
    /// How many places the owned shards have.
    count: usize,
}

/// Whether a shard may be claimed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceTurn {
    /// Its server may be asked.
    Now,
    /// It may be asked, but it hesitates: others first.
    AfterOthers,
    /// Enough is under way at it.
    Wait,
}

impl Places {
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

    /// What may be asked of `place`.
    pub(crate) fn turn(&self, place: Place, bounds: Bounds) -> PlaceTurn {
        let silent = self.silent.contains(&place);
        let load = self.under_way.get(&place);
        let claims = if silent { CLAIMS_OF_SILENT } else { bounds.claims };
        if load.is_some_and(|load| load.claims >= claims || load.permits >= self.share(bounds)) {
            return PlaceTurn::Wait;
        }
        let hesitates = self.count() > 1 && load.is_some_and(|load| load.since.elapsed() >= HESITATES);
        match silent || hesitates {
            false => PlaceTurn::Now,
            true if bounds.patient => PlaceTurn::AfterOthers,
            true => PlaceTurn::Wait,
        }
    }

    /// Permits that a claim at `place` may reserve.
    pub(crate) fn room(&self, place: Place, bounds: Bounds) -> usize {
        let held = self.under_way.get(&place).map_or(0, |load| load.permits);
        self.share(bounds).saturating_sub(held)
    }

    /// A claim goes to `place`.
    pub(crate) fn begins(&mut self, place: Place) {
        let fresh = || UnderWay { claims: 0, permits: 0, since: Instant::now() };
        self.under_way.entry(place).or_insert_with(fresh).claims += 1;
    }

    /// It has reserved so many permits, or gives them back.
    pub(crate) fn reserves(&mut self, place: Place, before: usize, permits: usize) {
        if let Some(load) = self.under_way.get_mut(&place) {
            load.permits = (load.permits + permits).saturating_sub(before);
        }
    }

    /// It is over; `answered`: by the server.
    pub(crate) fn ends(&mut self, place: Place, permits: usize, answered: bool) {
        if answered {
            self.silent.remove(&place);
        }
        let Some(load) = self.under_way.get_mut(&place) else { return };
        load.claims = load.claims.saturating_sub(1);
        load.permits = load.permits.saturating_sub(permits);
        if answered {
            load.since = Instant::now();
        }
        if load.claims == 0 {
            self.under_way.remove(&place);
        }
    }

    /// Whether `place` is silent, as a poll or a claim found; true: that is news. The only server there
    /// is never counts as silent: nothing is gained by leaving it out.
    pub(crate) fn hear(&mut self, place: Place, silent: bool) -> bool {
        if silent && self.count() > 1 { self.silent.insert(place) } else { self.silent.remove(&place) }
    }

    /// Forgets silent places that hold no owned shard any more.
    pub(crate) fn keep(&mut self, places: &BTreeSet<Place>) {
        self.silent.retain(|place| places.contains(place));
        self.set_count(places.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Bounds = Bounds { claims: 8, permits: 64, patient: true };

    fn two() -> Places {
        let mut places = Places::default();
        places.set_count(2);
        places
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_holds_no_more_than_its_part_of_the_permits() {
        let mut places = two();
        assert_eq!(places.room(Place(1), ALL), 32);
        places.begins(Place(1));
        places.reserves(Place(1), 0, 32);
        assert_eq!((places.turn(Place(1), ALL), places.turn(Place(2), ALL)), (PlaceTurn::Wait, PlaceTurn::Now));
        places.ends(Place(1), 32, true);
        assert_eq!((places.turn(Place(1), ALL), places.room(Place(1), ALL)), (PlaceTurn::Now, 32));
        let few = Bounds { permits: 1, ..ALL };
        assert_eq!((places.room(Place(1), few), places.room(Place(2), few)), (1, 1), "at least one each");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hesitates_is_asked_after_the_others_and_one_that_is_silent_once_at_a_time() {
        let mut places = two();
        places.begins(Place(1));
        assert_eq!(places.turn(Place(1), ALL), PlaceTurn::Now);
        tokio::time::advance(HESITATES).await;
        assert_eq!(places.turn(Place(1), ALL), PlaceTurn::AfterOthers);
        assert!(places.hear(Place(1), true) && !places.hear(Place(1), true));
        assert_eq!(places.turn(Place(1), ALL), PlaceTurn::Wait);
        places.ends(Place(1), 0, false);
        assert_eq!(places.turn(Place(1), ALL), PlaceTurn::AfterOthers);
        places.begins(Place(1));
        places.ends(Place(1), 0, true);
        assert_eq!(places.turn(Place(1), ALL), PlaceTurn::Now, "an answer is an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn the_only_server_is_never_left_out() {
        let mut places = Places::default();
        assert!(!places.hear(Place(1), true));
        places.begins(Place(1));
        tokio::time::advance(HESITATES * 10).await;
        assert_eq!(places.turn(Place(1), ALL), PlaceTurn::Now);
    }
}
