//! A world that fails says why, instead of ending the program.

use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::faults::Course;
use crate::marks::max_in_flight;
use crate::mutation::Mutation;
use crate::plan::Plan;
use crate::story;
use crate::world::{Seen, Story, run};

thread_local! {
    static WHY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on what fails in a world of this thread is kept, and not printed.
fn keep_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let inside = WHY.with_borrow_mut(|why| {
                // The first is the cause.
                why.as_mut().map(|why| {
                    if why.is_empty() {
                        *why = info.payload_as_str().unwrap_or("it failed").to_owned();
                    }
                })
            });
            if inside.is_none() {
                before(info);
            }
        }));
    });
}

fn ran(plan: &Plan, left_out: Option<Mutation>, keeps_lines: bool, seen: &Seen) -> Result<Story, String> {
    keep_quiet();
    WHY.set(Some(String::new()));
    let ran = catch_unwind(AssertUnwindSafe(|| run(plan, left_out, keeps_lines, seen)));
    let why = WHY.take().unwrap_or_default();
    ran.map_err(|_| why)
}

/// Runs a world to its end, if so with one rule of the protocol left out.
///
/// # Errors
///
/// What was broken.
pub fn judged(plan: &Plan, left_out: Option<Mutation>) -> Result<Story, String> {
    ran(plan, left_out, false, &Seen::default())
}

/// Runs it and tells what happened: where it fails, to the messages that it failed by, else all of it.
#[must_use]
pub fn told(plan: &Plan, left_out: Option<Mutation>, everything: bool) -> String {
    let seen = Seen::default();
    let why = ran(plan, left_out, true, &seen).err().unwrap_or_default();
    let Some((history, trace)) = seen.get() else { return why };
    story::told(&history.events(), &trace.lines(), &why, everything)
}

/// Does this for each seed, on all cores, until it answers false. A world is one thread; several worlds at once are
/// independent of each other.
pub fn each(seeds: Range<u64>, what: impl Fn(u64) -> bool + Sync) {
    let (next, over) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !what(seed) {
                        over.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// Rules that only worlds of one course come near.
const ONLY_IN: [(&str, Course); 9] = [
    ("next-by-itself", Course::Series),
    ("next-of-any-claim", Course::Series),
    ("edits-of-whatever-is-there", Course::Letters),
    ("edits-of-any-death", Course::Letters),
    ("edits-not-known-again", Course::Letters),
    ("moved-out-whatever-it-is", Course::Letters),
    ("undo-at-once", Course::Undone),
    ("restored-by-any-plan", Course::Undone),
    ("restored-after-a-cancel", Course::Undone),
];
/// Rules that only worlds with a bound of what is in flight come near.
const ONLY_WITH_BOUND: [&str; 2] = ["in-flight-not-counted", "places-of-others"];

/// Whether the world of this seed comes near the rule: no other is run for it.
fn comes_near(seed: u64, left_out: Mutation) -> bool {
    let only = ONLY_IN.iter().find(|(name, _)| *name == left_out.name);
    let has_bound = || Course::of(seed) == Course::Long && max_in_flight(seed).is_some();
    only.is_none_or(|(_, course)| Course::of(seed) == *course)
        && (!ONLY_WITH_BOUND.contains(&left_out.name) || has_bound())
}

/// A seed whose world notices that a rule is left out, and how.
#[must_use]
pub fn noticed(seeds: Range<u64>, left_out: Mutation) -> Option<(u64, String)> {
    let found = Mutex::new(None);
    each(seeds, |seed| {
        if !comes_near(seed, left_out) {
            return true;
        }
        let ended = judged(&Plan::of(seed), Some(left_out));
        if let Err(why) = &ended {
            found.lock().get_or_insert_with(|| (seed, why.clone()));
        }
        ended.is_ok()
    });
    found.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_only_some_worlds_come_near_are_rules() {
        let names = ONLY_IN.iter().map(|(name, _)| *name).chain(ONLY_WITH_BOUND);
        let strange: Vec<&str> = names.filter(|name| Mutation::named(name).is_none()).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }
}
