//! What tests and the programs they start share.

pub mod crash;
