//! Real servers for tests: on free loopback ports, in private folders, gone with the test.

mod node;
mod process;
mod proxy;
mod redis;

pub use node::Node;
pub use process::free_port;
pub use proxy::Proxy;
pub use redis::{RedisOptions, RedisServer};
