//! Real servers for tests: on free loopback ports, in private folders, gone with the test.

mod beanstalkd;
mod certificates;
mod cluster;
mod etcd;
mod http_proxy;
mod nats;
mod network;
mod node;
mod port_filter;
mod process;
mod prometheus;
mod proxy;
mod rabbitmq;
mod redis;
mod sentinel;
mod skewed_clock;
mod tansu;
mod versions;

pub use beanstalkd::BeanstalkdServer;
pub use certificates::write_certificates;
pub use cluster::RedisCluster;
pub use etcd::EtcdServers;
pub use http_proxy::{Fault, HttpProxy, Seen};
pub use nats::NatsServer;
pub use network::{NetworkSpace, Way};
pub use node::{Node, NodeOptions};
pub use port_filter::PortFilter;
pub use process::{ServerProcess, free_port};
pub use prometheus::{Alertmanager, Prometheus};
pub use proxy::Proxy;
pub use rabbitmq::RabbitMqServer;
pub use redis::{RedisOptions, RedisServer};
pub use sentinel::Sentinel;
pub use skewed_clock::SkewedClock;
pub use tansu::{TansuOptions, TansuServer};
pub use versions::ServerVersion;
