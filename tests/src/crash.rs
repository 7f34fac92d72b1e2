//! What the process that is killed and the test that kills it agree on.

use std::time::Duration;

/// The topic both work on.
pub const TOPIC: &str = "orders";
/// Its shards.
pub const SHARDS: u64 = 4;
/// How far ahead messages lie that nobody claims.
pub const FAR: Duration = Duration::from_secs(86_400);
/// How long a claim hides; less than the time between two processes.
pub const VISIBILITY: Duration = Duration::from_millis(500);

/// Numbers that look random and follow from the seed (splitmix64, Steele et al., 2014).
#[derive(Clone, Debug)]
pub struct Draw {
    /// What they follow from.
    pub seed: u64,
    state: u64,
}

impl Draw {
    /// The numbers of one worker.
    #[must_use]
    pub fn new(seed: u64, worker: u64) -> Self {
        Self { seed, state: seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ worker.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// The next one.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next one, below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
