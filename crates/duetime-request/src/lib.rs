//! Until when what a request asks for may be begun, and what log lines name it by.
//!
//! A request that its client has given up must not be carried out later: the client may have asked another node, and have
//! changed its mind since. So each request has an end, and what is begun for it looks at that: the queues before a call,
//! the link to the store before each sending. The deadline goes with the task of the request ([`RequestDeadline::scope`]); what has
//! none (sinks, background loops) never ends so. Upstream: the HTTP API, which makes ends; webhooks, whose connections end
//! with a stall. Downstream: tokio.

mod deadline;
mod name;
pub mod stall;

pub use deadline::RequestDeadline;
pub use name::RequestName;
pub use stall::Generation;
