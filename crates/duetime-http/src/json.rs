//! How requests are read and answers are written: JSON, NDJSON, paths, problems, schemas. Knows nothing of who asks.

pub(crate) mod became;
pub(crate) mod bounded_vec;
pub(crate) mod codes;
pub(crate) mod fields;
pub(crate) mod found;
pub(crate) mod message_in;
pub(crate) mod ndjson;
pub(crate) mod once_map;
pub(crate) mod path;
pub(crate) mod problem;
pub(crate) mod repeat;
pub(crate) mod schema;
pub(crate) mod setting_schema;
pub(crate) mod spool;
pub(crate) mod topic_failure;
pub(crate) mod trace;
