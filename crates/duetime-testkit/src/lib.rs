//! What the tests stand on: clocks moved by hand, suites and real servers.
//!
//! Upstream: tests of every crate. Never linked into the program.
//! A function that cannot do what it says (a server does not start, a tool is missing) panics and so fails its test;
//! the message has the server's log or the remedy.

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
