//! The bound of what a topic has in flight, divided over its shards.
//!
//! Each shard has its part, and the step that claims counts what is in flight there: so all together keep within the
//! bound, and no shard asks another. While the shard count changes, what is in flight stays where it was claimed, the
//! old shards have as many places as under the lower of the two counts from the fence on, and a new one has those that
//! old ones have given up ([`crate::ResizeStore::hand_over_places`]).

use crate::in_flight_bound::InFlightBound;
use crate::routing::Routing;

/// The part of `max` that shard `index` of so many has.
fn part(max: u32, shards: u32, index: u32) -> u32 {
    if index < shards { max / shards + u32::from(index < max % shards) } else { 0 }
}

impl Routing {
    /// How many messages shard `index` may have in flight.
    #[must_use]
    pub fn in_flight_bound(&self, index: u32) -> InFlightBound {
        let Some(max) = self.max_in_flight else { return InFlightBound::None };
        if !self.is_moving() || self.shards > self.previous && index < self.previous {
            return InFlightBound::Most(part(max, self.shards, index));
        }
        match self.shards > self.previous {
            true => InFlightBound::HandedOver(part(max, self.shards, index)),
            // The shards that are left go on with what they had: they have the others' places once those are empty.
            false => InFlightBound::Most(part(max, self.previous, index)),
        }
    }

    /// Whether places are handed over to new shards under this record.
    #[must_use]
    pub fn hands_over_places(&self) -> bool {
        self.max_in_flight.is_some() && self.is_moving() && self.shards > self.previous
    }

    /// How many places each new shard has, where the old ones, in order, have so many messages in flight (`None`: it is
    /// not known); and whether these are all. What an old shard has beyond its part under this record it can only lose.
    #[must_use]
    pub fn places(&self, in_flight: impl IntoIterator<Item = Option<u64>>) -> (Vec<(u32, u32)>, bool) {
        let max = self.max_in_flight.unwrap_or(0);
        let (mut free, mut all) = (0, 0);
        for (index, in_flight) in (0..self.previous).zip(in_flight) {
            let (before, now) = (part(max, self.previous, index), part(max, self.shards, index));
            let held = in_flight.and_then(|held| u32::try_from(held).ok()).unwrap_or(before);
            free += before - held.clamp(now, before);
            all += before - now;
        }
        let new = self.shards - self.previous;
        let places = (0..new).map(|at| (self.previous + at, part(free, new, at))).collect();
        (places, free == all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::{ChangeId, RoutingState};

    fn moving(max: u32, previous: u32, shards: u32) -> Routing {
        let first = Routing::first(previous, ChangeId(1));
        Routing { shards, state: RoutingState::Moving, max_in_flight: Some(max), epoch: 2, ..first }
    }

    fn most(routing: &Routing, index: u32, handed_over: u32) -> u32 {
        routing.in_flight_bound(index).most(handed_over).unwrap()
    }

    #[test]
    fn the_parts_of_all_shards_are_the_bound() {
        for (max, shards) in [(1, 1), (4, 4), (10, 4), (11, 4), (4096, 4096), (1_000_003, 64)] {
            let routing = Routing { max_in_flight: Some(max), ..Routing::first(shards, ChangeId(1)) };
            let parts: Vec<u32> = (0..shards).map(|index| most(&routing, index, 0)).collect();
            assert_eq!(parts.iter().sum::<u32>(), max);
            assert!(parts.iter().all(|part| *part > 0 && part.abs_diff(parts[0]) <= 1), "{parts:?}");
        }
        assert_eq!(Routing::first(4, ChangeId(1)).in_flight_bound(0), InFlightBound::None);
    }

    #[test]
    fn while_the_shard_count_changes_the_parts_never_pass_the_bound() {
        for max in 1..40 {
            for (previous, shards) in (1..=max).flat_map(|from| (1..=max).map(move |to| (from, to))) {
                if previous == shards {
                    continue;
                }
                let routing = moving(max, previous, shards);
                if shards < previous {
                    let all: u32 = (0..previous).map(|index| most(&routing, index, 0)).sum();
                    assert_eq!(all, max);
                    continue;
                }
                // Every number of messages that the old shards may still have in flight, all at one of them or at each.
                for left in 0..=max {
                    let held = |index| u64::from(part(max, previous, index).min(left));
                    let (places, done) = routing.places((0..previous).map(|index| Some(held(index))));
                    let new: u32 = places.iter().map(|(index, places)| most(&routing, *index, *places)).sum();
                    let old: u64 =
                        (0..previous).map(|index| held(index).max(u64::from(most(&routing, index, 0)))).sum();
                    assert_eq!(old + u64::from(new), u64::from(max), "{previous} to {shards}, {left}");
                    let whole = |(index, places): &(u32, u32)| *places == part(max, shards, *index);
                    assert_eq!(done, places.iter().all(whole), "{previous} to {shards}, {left}");
                }
            }
        }
    }

    #[test]
    fn a_shard_that_says_nothing_gives_up_no_place() {
        let routing = moving(8, 2, 4);
        assert_eq!(routing.places([None, Some(0)]), (vec![(2, 1), (3, 1)], false));
        assert_eq!(routing.places([Some(0), Some(0)]), (vec![(2, 2), (3, 2)], true));
        assert_eq!(routing.places([Some(900), Some(3)]), (vec![(2, 1), (3, 0)], false));
    }
}
