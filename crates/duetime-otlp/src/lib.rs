//! Sends the spans of deliveries to a collector, by OTLP over HTTP or gRPC.
//!
//! Upstream: the engine and the HTTP API, which report deliveries by the contract `Tracer`. Downstream: a collector. A
//! span waits in a queue with a bound until a loop sends it; what the queue or the collector does not take is
//! counted and dropped, so that nobody waits for a collector.

mod export;
mod settings;
mod spans;

pub use export::Export;
pub use settings::Settings;
pub use spans::Spans;
