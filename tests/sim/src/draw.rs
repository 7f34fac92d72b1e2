//! Chance, from one seed.

use std::time::Duration;

use parking_lot::Mutex;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub struct Dice(Mutex<u64>);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// From now on another chance than that of the seed alone; 0: the same.
    pub fn salt(&self, salt: u64) {
        *self.0.lock() ^= salt.wrapping_mul(0xd6e8_feb8_6659_fd93);
    }

    pub fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True so many times in a thousand.
    pub fn permille(&self, n: u64) -> bool {
        self.below(1_000) < n
    }

    pub async fn pause(&self, ms_max: u64) {
        tokio::time::sleep(Duration::from_millis(self.below(ms_max + 1))).await;
    }
}
