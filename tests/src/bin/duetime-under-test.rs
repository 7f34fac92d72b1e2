//! The program itself, built for the tests: a plain `cargo test` builds no other package's program.
//!
//! A file `fault` in its working folder, `STEP COUNT SIGNAL`, has it send itself the signal as soon as a
//! change of a shard count has taken that step so many times; the file is removed first. Instead of the signal
//! `panic` has it panic there, with the text of the file `panic`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use duetime_resize::{Step, Steps};
use duetime_tests::{FAULT_FILE, PANIC_FILE};
use nix::sys::signal::{Signal, raise};

#[derive(Debug, Default)]
struct Fault {
    /// How often the step was taken since the last fault.
    met: AtomicU32,
}

#[async_trait]
impl Steps for Fault {
    async fn reached(&self, step: Step) {
        let Ok(text) = std::fs::read_to_string(FAULT_FILE) else { return };
        let [name, count, signal] = text.split_whitespace().collect::<Vec<_>>()[..] else { return };
        if Step::ALL.iter().all(|known| *known != (step, name)) {
            return;
        }
        if self.met.fetch_add(1, Ordering::SeqCst) + 1 < count.parse().expect("a count") {
            return;
        }
        // Only who removes it is struck.
        if std::fs::remove_file(FAULT_FILE).is_ok() {
            self.met.store(0, Ordering::SeqCst);
            if signal == "panic" {
                refused(std::fs::read_to_string(PANIC_FILE).expect("the text")).unwrap();
            }
            raise(signal.parse::<Signal>().expect("a signal")).expect("one may signal oneself");
        }
    }
}

/// An error with this in it, as libraries have them.
fn refused(text: String) -> Result<(), String> {
    Err(text)
}

fn main() -> ExitCode {
    duetime::main_watched(Arc::new(Fault::default()))
}
