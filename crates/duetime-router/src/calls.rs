//! Calls to the store for ids: where each is looked for, gathered into batches of one shard.

pub(crate) mod batch_queue;
pub(crate) mod candidates;
pub(crate) mod endings;
pub(crate) mod ops;
pub(crate) mod route;
pub(crate) mod topic_limits;
