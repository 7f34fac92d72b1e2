//! What tests and the programs they start share.

pub mod crash;
pub mod soak;

/// In the working folder of a node under test: what is to befall it, see `duetime-under-test`.
pub const FAULT_FILE: &str = "fault";
/// The file that has the text with which it panics.
pub const PANIC_FILE: &str = "panic";
