//! The last counts of shards, for who shows them: what the store was asked for the gauges it is not asked again.

use std::collections::HashMap;
use std::time::Duration;

use duetime_core::store::ShardCounts;
use duetime_core::{Shard, Timestamp};
use parking_lot::Mutex;

/// Counts are good enough to be shown for this long: longer than the gauges of a node's own shards are apart.
pub const SURVEYS_KEPT: Duration = Duration::from_secs(8);

/// The last counts of shards, for who shows them: what the store was asked for the gauges it is not asked again. One
/// entry for each shard that was counted lately.
#[derive(Debug, Default)]
pub struct Surveys {
    kept: Mutex<HashMap<Shard, (Timestamp, ShardCounts)>>,
}

/// Also not of the future: the clock was set back.
fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    at <= now && now.since(at) < SURVEYS_KEPT
}

impl Surveys {
    /// Keeps what was counted at `now`; what is too old is forgotten. O(shards kept).
    pub fn keep<'a>(&self, now: Timestamp, counted: impl IntoIterator<Item = (&'a Shard, &'a ShardCounts)>) {
        let mut kept = self.kept.lock();
        kept.retain(|_, (at, _)| is_fresh(*at, now));
        kept.extend(counted.into_iter().map(|(shard, survey)| (shard.clone(), (now, *survey))));
    }

    /// What was counted of each shard lately; `None`: nothing, or too long ago.
    #[must_use]
    pub fn of(&self, now: Timestamp, shards: &[Shard]) -> Vec<Option<ShardCounts>> {
        let kept = self.kept.lock();
        let fresh = |shard| kept.get(shard).filter(|(at, _)| is_fresh(*at, now));
        shards.iter().map(|shard| fresh(shard).map(|(_, survey)| *survey)).collect()
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::{ChangeId, RoutingId, TopicName};

    use super::*;

    #[test]
    fn counts_are_kept_for_some_seconds_and_of_this_life_of_the_topic_only() {
        let shard = |epoch| {
            Shard::new(TopicName::new("orders").unwrap(), 0, RoutingId { epoch, change_id: ChangeId::default() })
        };
        let (surveys, counted) = (Surveys::default(), ShardCounts { scheduled: 7, ..ShardCounts::default() });
        let at = Timestamp::from_millis(1_000_000);
        surveys.keep(at, [(&shard(1), &counted)]);
        assert_eq!(surveys.of(at, &[shard(1), shard(2)]), [Some(counted), None]);
        let later = at.plus(SURVEYS_KEPT);
        assert_eq!(surveys.of(later, &[shard(1)]), [None]);
        assert_eq!(surveys.of(Timestamp::from_millis(999_999), &[shard(1)]), [None], "the clock was set back");
        surveys.keep(later, [(&shard(2), &counted)]);
        assert_eq!(surveys.kept.lock().len(), 1, "what is too old takes no memory");
    }
}
