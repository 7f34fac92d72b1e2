//! A world that fails says why, instead of ending the program.

use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

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

/// A seed whose world notices that a rule is left out, and how.
#[must_use]
pub fn noticed(seeds: Range<u64>, left_out: Mutation) -> Option<(u64, String)> {
    let found = Mutex::new(None);
    each(seeds, |seed| {
        let ended = judged(&Plan::of(seed), Some(left_out));
        if let Err(why) = &ended {
            found.lock().get_or_insert_with(|| (seed, why.clone()));
        }
        ended.is_ok()
    });
    found.into_inner()
}
