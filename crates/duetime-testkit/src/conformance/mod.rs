//! Suites that every implementation of a contract runs, once for all.

pub mod sink;
pub mod store;
