//! A small Redis for tests: in memory, in the time of tokio's clock, with Lua, replicas that lag, and connections over
//! any way.
//!
//! It has the commands that the product uses and what they answer, and is held against a real server by
//! `tests/against_redis.rs`. The product's own scripts run in it, unchanged or with an edit. What it leaves out: access
//! rules, persistence, RESP3, transactions, eviction.

mod cluster;
mod commands;
mod db;
mod dialler;
mod inside;
mod lua;
mod lua_lib;
mod pipe;
mod reply;
mod server;
mod zset;

pub use cluster::Cluster;
pub use db::Db;
pub use dialler::SmallRedis;
pub use lua::sha1_hex;
pub use pipe::{Direct, Fate, Socket, Way, connect};
pub use reply::Reply;
pub use server::{Edit, ScriptCall, Server, Snapshot, Witness};
