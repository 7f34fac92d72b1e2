//! A producer's and a consumer's view of a node, over HTTP.
//!
//! Upstream: the command line, the benches, anybody's Rust program. Downstream: the API of a node.
//! Connections are kept and used again. Knows no store.

mod again;
mod answers;
mod backup;
mod became;
mod bulk;
mod call;
mod consume;
mod consumers;
mod dead;
mod dead_groups;
mod error;
mod forecast;
mod handled;
mod list;
mod message;
mod message_lines;
mod messages;
mod named_sinks;
mod ndjson;
mod nodes;
mod observe;
mod pause;
mod recent;
mod repeat;
mod shards;
mod sink;
mod sink_issue;
mod topics;
mod verify;
mod watermark;

pub use answers::{
    Answer, Claimed, ClaimedMessage, DeadDone, DeadOutcome, DeadPage, Death, Explained, ItemProblem, Message, Outcome,
    Placed, Previous, Refused, Topic,
};
pub use backup::BackupDownload;
pub use became::Became;
pub use bulk::{BulkAsk, BulkCounts, BulkFailure, BulkPlan, BulkStart, BulkUndo};
pub use call::Client;
pub use consumers::{Claim, ClaimFailure, ClaimedAny, Consumer, Consumers, Nack};
pub use dead::{DeadChoice, DeadResend};
pub use dead_groups::{DeadGroup, DeadGroups};
pub use duetime_core::names::MessageId;
pub use duetime_core::routing::shard_of;
pub use duetime_core::units::parse_duration;
pub use duetime_core::{Due, Expiry, Missed, OnConflict, RepeatAsk, Timestamp, TopicConfig};
pub use error::{ClientError, Problem};
pub use forecast::{Bucket, Forecast, Herd};
pub use handled::{ConsumeOptions, ConsumerEvent, Handled};
pub use list::{FindFailure, Found, FoundPage, ListFilter, ListPage, Listed};
pub use message::NewMessage;
pub use message_lines::MessageLines;
pub use named_sinks::{NamedSink, NamedSinks};
pub use ndjson::Placements;
pub use nodes::{DrainAnswer, GoneNode, Issues, NodeDrain, NodeIssue, NodeView, NodeVitals, Nodes, TestClock};
pub use pause::TopicPause;
pub use recent::{
    AuditFilter, AuditLine, AuditLog, Me, NodeAnswer, NotAccepted, RateStep, Rates, SinkRates, TopicRates,
};
pub use repeat::RepeatRule;
pub use shards::{Adopted, Resize, ResizePreview, ShardView, Shards};
pub use sink::{Outage, Outages, Probed, Scanner, SinkTopic, SinkTopicError, SinkTopics, SinkView};
pub use sink_issue::{NodeSinkIssue, SinkIssue};
pub use verify::{TOLERANCE, VerifyError, verify};
pub use watermark::{HeldBy, Watermark};
