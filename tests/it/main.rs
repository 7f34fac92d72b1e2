//! Tests on real servers and the real program; modules are named after what a user does or meets.

mod cli;
mod delivery;
mod embedded_crash;
mod embedded_store;
mod http_api;
mod metrics;
mod openapi;
mod properties;
mod redis_faults;
mod redis_store;
mod shutdown;
mod webhook;
