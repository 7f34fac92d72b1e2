//! The sink `http`: a webhook per Standard Webhooks, one request for each message, or for several where asked.
//!
//! `config` is the manual of its settings, `batch` has several messages in one request, `request` builds what is sent,
//! `message_url` the URL of each message where it has its own, which `allowed_url` decides about, `guard` decides which
//! addresses may be reached, `client` sends on connections of `sliced`, whose `frames` are counted, `sign` signs,
//! `verdict` judges the answers, `target` does it all.

mod allowed_url;
mod batch;
mod client;
mod config;
mod frames;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod guard;
mod message_url;
mod request;
mod sign;
mod sliced;
mod target;
mod verdict;

pub use config::{HttpConfig, KIND};
pub(crate) use target::HttpTarget;

#[cfg(test)]
mod tests;
