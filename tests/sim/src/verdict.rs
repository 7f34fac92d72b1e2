//! A world that fails says why, instead of ending the program.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::mutation::Mutation;
use crate::world::{Story, run};

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

/// Runs the world of `seed` to its end, if so with one rule of the protocol left out.
///
/// # Errors
///
/// What was broken.
pub fn judged(seed: u64, left_out: Option<Mutation>) -> Result<Story, String> {
    keep_quiet();
    WHY.set(Some(String::new()));
    let ran = catch_unwind(AssertUnwindSafe(|| run(seed, left_out)));
    let why = WHY.take().unwrap_or_default();
    ran.map_err(|_| why)
}
