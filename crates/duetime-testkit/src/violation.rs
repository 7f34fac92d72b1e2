//! How a test on real servers fails: a broken promise is kept on record, a wait that ran out is marked.
//!
//! A slow machine makes waits run out, so such a test may be tried again. A broken promise (the
//! verdict on a history, a crash ledger, a secret in a log) is never excused by a second try:
//! [`violated`] leaves a file, and `./test` fails if there is one at its end.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// Names the folder that takes a file for each test that saw a broken promise. `./test` sets it.
pub const FOLDER_VARIABLE: &str = "DUETIME_TEST_VIOLATIONS";

/// Begins the message of a panic that says that a wait ran out. `tests/retries.py` looks for it.
pub const TIMED_OUT: &str = "[time-out]";

/// Writes down that a promise of the product is broken, and fails the test.
#[track_caller]
pub fn violated(what: impl Display) -> ! {
    let what = what.to_string();
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        keep(folder.as_ref(), &test_name(), &what);
    }
    panic!("a promise is broken: {what}");
}

/// Fails the test because a wait ran out, so that it may be tried again.
#[track_caller]
pub fn timed_out(what: impl Display) -> ! {
    panic!("{TIMED_OUT} {what}");
}

/// Names the file that takes a line for each test that is not run here. `./test` sets it and shows them.
pub const NOT_RUN_VARIABLE: &str = "DUETIME_TEST_NOT_RUN";

/// Says that the test cannot run on this machine; the test returns then.
///
/// # Panics
///
/// Where `CI` is set: there every test runs.
#[track_caller]
pub fn cannot_run(why: &str) {
    let test = test_name();
    assert!(std::env::var_os("CI").is_none(), "{test} cannot run: {why}");
    note_not_run(&test, why);
}

/// Says that the test is one of `./test --long`, and that this run is none; the test returns then.
pub fn only_in_long(why: &str) {
    note_not_run(&test_name(), why);
}

fn note_not_run(test: &str, why: &str) {
    eprintln!("{test} is not run: {why}");
    if let Some(file) = std::env::var_os(NOT_RUN_VARIABLE) {
        let file = std::fs::File::options().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| writeln!(file, "{test}: {why}"));
    }
}

/// Set by `./test --long`: what is big or slow is as big and slow as it can be.
pub const LONG_VARIABLE: &str = "DUETIME_TEST_LONG";

/// Whether the run is a long one.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os(LONG_VARIABLE).is_some()
}

/// Fails with [`violated`] unless the condition holds.
#[macro_export]
macro_rules! promised {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            $crate::violation::violated(format!($($what)+));
        }
    };
}

/// Fails with [`timed_out`] unless the condition holds: for deadlines, and for how late something was.
#[macro_export]
macro_rules! in_time {
    ($holds:expr $(,)?) => {
        if !$holds {
            $crate::violation::timed_out(stringify!($holds));
        }
    };
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            $crate::violation::timed_out(format!($($what)+));
        }
    };
}

/// The test that runs: nextest says it, and else the thread bears its name.
fn test_name() -> String {
    std::env::var("NEXTEST_TEST_NAME")
        .ok()
        .or_else(|| std::thread::current().name().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}

fn keep(folder: &Path, test: &str, what: &str) {
    let plain: String = test.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::File::options().create(true).append(true).open(folder.join(plain)))
        .and_then(|mut file| writeln!(file, "{test}: {what}"));
    if let Err(error) = written {
        eprintln!("{}: {error}", folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_broken_promise_of_a_test_is_kept_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("violations");
        keep(&folder, "fleet::a_test", "m-1 is lost");
        keep(&folder, "fleet::a_test", "m-2 is lost");
        let kept = std::fs::read_to_string(folder.join("fleet__a_test")).unwrap();
        assert_eq!(kept, "fleet::a_test: m-1 is lost\nfleet::a_test: m-2 is lost\n");
    }

    #[test]
    #[should_panic(expected = "[time-out] 3 are missing")]
    fn a_wait_that_ran_out_is_marked() {
        in_time!(1 > 2, "{} are missing", 3);
    }
}
