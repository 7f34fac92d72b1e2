//! Tests on real servers and the real program; modules are named after what a user does or meets.

mod canary;
mod cli;
mod delivery;
mod embedded_crash;
mod embedded_store;
mod fleet;
mod front;
mod hand_over;
mod http_api;
mod in_place;
mod left;
mod metrics;
mod million;
mod openapi;
mod ownership;
mod properties;
mod redis_cluster;
mod redis_faults;
mod redis_store;
mod reshard_store;
mod resize;
mod server_versions;
mod shutdown;
mod sink_breaker;
mod sink_check;
mod sink_in_flight;
#[cfg(feature = "kafka")]
mod sink_kafka;
mod sink_nats;
mod sink_outage;
mod sink_rabbitmq;
mod sink_redis_stream;
mod sink_tls;
mod targets;
mod webhook;
