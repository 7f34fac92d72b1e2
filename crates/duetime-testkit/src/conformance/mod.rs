//! Suites that every implementation of a contract runs, once for all.

pub mod store;
