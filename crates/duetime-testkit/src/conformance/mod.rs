//! Suites that every implementation of a contract runs, once for all.

mod factory;
pub mod ownership;
pub mod resize;
pub mod sink;
pub mod store;

pub use factory::StoreFactory;
