//! Histories of real runs: what clients and targets saw, written down event by event, and checked
//! against the invariants of `docs/PROTOCOL.md`.
//!
//! A test notes each event as it happens ([`Recorder`]), asks for what is left at the end
//! ([`FinalState`]), and has both judged ([`check`]). I11 is the resize's and not checked here.

mod attempts;
mod cancelled;
mod conservation;
mod content;
mod duplicates;
mod effects;
mod event;
mod fault;
mod read;
mod recorder;
mod story;
mod timing;
mod verdict;

#[cfg(test)]
mod tests;

pub use effects::check_effects;
pub use event::{Change, Event, FaultFields, FaultKind, Outcome, What, digest};
pub use fault::Rules;
pub use read::read;
pub use recorder::Recorder;
pub use story::{FinalState, Invariant, Left, Violation};
pub use verdict::{Verdict, check};
