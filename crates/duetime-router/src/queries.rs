//! What is asked of many messages of a topic at once: pages, counts, forecasts; in steps of bounded cost.

pub(crate) mod body_steps;
pub(crate) mod dead;
pub(crate) mod dead_groups;
pub(crate) mod forecast;
pub(crate) mod forecasts;
pub(crate) mod herd;
pub(crate) mod list;
pub(crate) mod topic_counts;
pub(crate) mod watermark;
