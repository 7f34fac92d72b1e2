//! Who scans which shard: a pure function of the members and the shards.
//!
//! Every node computes it for itself and all come to the same answer. Each pair of member and shard
//! has a fixed pseudo-random weight (rendezvous hashing, Thaler and Ravishankar, 1998); each member
//! has a quota, and shards are matched to members as in Gale and Shapley, "College Admissions and
//! the Stability of Marriage", 1962: a shard asks the members by falling weight, a member that is
//! full keeps the heaviest. The result does not depend on any order, its sizes differ by one at
//! most, and a member that comes or goes moves little more than its own share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A well-spread 64-bit mix: the finalizer of MurmurHash3 (Appleby, 2011).
fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// FNV-1a (Fowler, Noll, Vo), mixed: stable on every machine and in every version.
fn hash(bytes: &[u8]) -> u64 {
    let fnv = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv))
}

/// One shard for [`assign`]: a number that is the same on every node.
#[must_use]
pub fn shard_key(topic: &str, index: u32) -> u64 {
    hash(topic.as_bytes()) ^ mix(u64::from(index).wrapping_add(0x9e37_79b9_7f4a_7c15))
}

fn weight(shard: u64, member: u64) -> u64 {
    mix(shard ^ member)
}

/// For each shard, the place of its member in `members`.
///
/// Members are unique names in any order. The answer for no members is empty. Sizes differ by one
/// at most. Cost: O(members · shards), about 1.5 ns for each pair.
#[must_use]
pub fn assign(members: &[&str], shards: &[u64]) -> Vec<u32> {
    if members.is_empty() {
        return Vec::new();
    }
    let names: Vec<u64> = members.iter().map(|name| hash(name.as_bytes())).collect();
    let quota = quotas(&names, shards.len());
    // Each member's shards, the lightest on top.
    let mut kept: Vec<BinaryHeap<Reverse<(u64, u32)>>> =
        quota.iter().map(|n| BinaryHeap::with_capacity(n + 1)).collect();
    for shard in 0..shards.len() {
        let mut asking = u32::try_from(shard).expect("far fewer shards than that");
        let mut below = (u64::MAX, u32::MAX);
        while let Some(member) = next(shards[asking as usize], &names, below) {
            let heavy = weight(shards[asking as usize], names[member as usize]);
            let seats = &mut kept[member as usize];
            seats.push(Reverse((heavy, asking)));
            if seats.len() <= quota[member as usize] {
                break;
            }
            let Reverse((refused, loser)) = seats.pop().expect("it is over its quota");
            asking = loser;
            below = (refused, member);
        }
    }
    let mut owners = vec![0; shards.len()];
    for (member, seats) in (0..).zip(kept) {
        for Reverse((_, shard)) in seats {
            owners[shard as usize] = member;
        }
    }
    owners
}

/// Each member's quota: the shards are shared evenly, and what is left over goes to the members of
/// the greatest hash.
fn quotas(names: &[u64], shards: usize) -> Vec<usize> {
    let (each, over) = (shards / names.len(), shards % names.len());
    let mut ranked: Vec<usize> = (0..names.len()).collect();
    ranked.sort_by_key(|member| Reverse(names[*member]));
    let mut quota = vec![each; names.len()];
    for member in &ranked[..over] {
        quota[*member] += 1;
    }
    quota
}

/// The heaviest member for `shard` that is lighter than `below`, which is a weight and a place.
fn next(shard: u64, names: &[u64], below: (u64, u32)) -> Option<u32> {
    let mut best: Option<(u64, u32)> = None;
    for (place, name) in (0..).zip(names) {
        let seen = (weight(shard, *name), place);
        if seen < below && best.is_none_or(|best| seen > best) {
            best = Some(seen);
        }
    }
    best.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("node-{n}")).collect()
    }

    fn keys(count: u32) -> Vec<u64> {
        (0..count).map(|index| shard_key("orders", index)).collect()
    }

    fn owners(members: &[String], shards: &[u64]) -> Vec<String> {
        let refs: Vec<&str> = members.iter().map(String::as_str).collect();
        assign(&refs, shards).into_iter().map(|member| members[member as usize].clone()).collect()
    }

    fn moved(before: &[String], after: &[String]) -> usize {
        before.iter().zip(after).filter(|(a, b)| a != b).count()
    }

    proptest! {
        #[test]
        fn sizes_differ_by_one_at_most(members in 1_usize..40, shards in 0_u32..400) {
            let (members, shards) = (names(members), keys(shards));
            let owners = owners(&members, &shards);
            let counts = members.iter().map(|name| owners.iter().filter(|owner| *owner == name).count());
            let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
            prop_assert!(most - least <= 1, "{least} to {most}");
            prop_assert_eq!(owners.len(), shards.len());
        }

        #[test]
        fn the_order_of_members_and_shards_is_nobodys_business(
            count in 1_usize..20, shards in 0_u32..200, seed in any::<u64>(),
        ) {
            let (members, shards) = (names(count), keys(shards));
            let before = owners(&members, &shards);
            let mut shuffled = members.clone();
            shuffled.sort_by_key(|name| mix(hash(name.as_bytes()) ^ seed));
            prop_assert_eq!(&before, &owners(&shuffled, &shards));
            let (turned, mut back) = (shards.iter().rev().copied().collect::<Vec<_>>(), before);
            back.reverse();
            prop_assert_eq!(back, owners(&members, &turned));
        }

        #[test]
        fn a_member_that_comes_or_goes_moves_little_more_than_its_share(
            count in 2_usize..30, shards in 1_u32..600, gone in any::<prop::sample::Index>(),
        ) {
            let (mut members, shards) = (names(count), keys(shards));
            let with = owners(&members, &shards);
            let gone = members.remove(gone.index(count));
            let without = owners(&members, &shards);
            let share = with.iter().filter(|owner| **owner == gone).count();
            let moved = moved(&with, &without);
            // Quotas change by one at most and a displaced shard may displace another.
            let bound = 3 * share + 2 * count;
            prop_assert!(moved <= bound, "{moved} moved, the share was {share}, {count} members");
        }
    }

    #[test]
    fn a_large_fleet_moves_few_shards_when_one_of_it_goes() {
        let (mut members, shards) = (names(50), keys(5_000));
        let before = owners(&members, &shards);
        members.remove(17);
        let moved = moved(&before, &owners(&members, &shards));
        assert!((100..=250).contains(&moved), "{moved} moved where 100 must");
    }

    #[test]
    fn nobody_owns_nothing_and_the_answer_is_the_same_in_every_version() {
        assert!(assign(&[], &keys(5)).is_empty());
        assert_eq!(assign(&["a", "b", "c"], &keys(10)), GOLDEN);
    }

    /// Nodes of two versions work side by side during an upgrade.
    const GOLDEN: [u32; 10] = [1, 1, 2, 0, 0, 1, 0, 2, 0, 2];
}
