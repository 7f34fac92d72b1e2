//! Requests as most tests make them; what a test is about, it sets itself: `Enqueue { payload, ..plain_message(id, due) }`.

use std::time::Duration;

use bytes::Bytes;
use duetime_core::store::{ClaimRequest, Enqueue};
use duetime_core::{
    ChangeId, DeliveryMode, Due, Headers, LeaseClass, MessageId, Nonce, OnConflict, RetryPolicy, ShardCount, Timestamp,
    TopicConfig, TopicName, TopicRecord,
};

/// A new topic of so many shards, else by the settings that a topic has by default.
///
/// # Panics
///
/// When the name is none.
#[must_use]
pub fn topic_record(name: &str, shards: u32, now: Timestamp) -> TopicRecord {
    let name = TopicName::new(name).expect("tests use good names");
    let config = TopicConfig { shards: ShardCount::Fixed(shards), ..TopicConfig::default() };
    TopicRecord::new(name, config, 1, ChangeId(1), now)
}

/// A message without headers and payload, refused if its id lives.
///
/// # Panics
///
/// When the id is none.
#[must_use]
pub fn plain_message(id: &str, due: Due) -> Enqueue {
    Enqueue {
        id: MessageId::new(id).expect("tests use good ids"),
        due,
        headers: Headers::default(),
        payload: Bytes::new(),
        on_conflict: OnConflict::Reject,
        nonce: Nonce(rand::random()),
    }
}

/// A new claim of up to `limit` messages for 30 s, by the settings that a topic has by default.
#[must_use]
pub fn claim_request(limit: usize) -> ClaimRequest {
    ClaimRequest {
        request: rand::random(),
        limit,
        visibility: Duration::from_secs(30),
        class: LeaseClass::TOPIC,
        retry: RetryPolicy::default(),
        delivery: DeliveryMode::AtLeastOnce,
    }
}
