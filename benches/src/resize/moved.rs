//! How many ids another shard count moves: jump consistent hash beside hash mod M.

use std::fmt::Write as _;

use duetime_core::routing::{hash_of, shard_of, topic_seed};
use duetime_core::{MessageId, TopicName};

use super::TOPIC;
use super::load::far;

/// Changes that are counted.
const CHANGES: [(u32, u32); 5] = [(8, 9), (8, 16), (16, 12), (16, 8), (64, 65)];

/// A table of the fractions of `count` ids, those the run enqueues.
#[must_use]
pub fn table(count: u64) -> String {
    let seed = topic_seed(&TopicName::new(TOPIC).expect("a valid name"));
    let ids: Vec<MessageId> = (0..count).map(|n| MessageId::new(&far(n)).expect("a valid id")).collect();
    let mut out = "| shards | ids that move | by hash mod M |\n|---|---|---|\n".to_owned();
    for (from, to) in CHANGES {
        let share =
            |moves: &dyn Fn(&MessageId) -> bool| ids.iter().filter(|id| moves(id)).count() as f64 / count.max(1) as f64;
        let jump = share(&|id| shard_of(id, seed, from) != shard_of(id, seed, to));
        let modulo = share(&|id| hash_of(id, seed) % u64::from(from) != hash_of(id, seed) % u64::from(to));
        writeln!(out, "| {from} → {to} | {jump:.3} | {modulo:.3} |").expect("a string takes all");
    }
    out
}
