//! What the tests stand on: clocks moved by hand, suites and real servers.
//!
//! Upstream: tests of every crate. Never linked into the program.

pub mod at_home;
pub mod clock;
pub mod conformance;
pub mod history;
pub mod requests;
pub mod servers;
mod stall;
pub mod violation;
pub mod wait;
pub mod webhook;

pub use clock::{ManualClock, TokioClock, WallClock};
pub use requests::{claim_request, plain_message, topic_record};
pub use webhook::Webhook;
