//! What became of a message that is gone, as answers have it.

use duetime_core::{End, Outcome};
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::json::schema;

/// What became of a message that is gone, as a topic with `remember` knows.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Became)]
pub(crate) struct BecameView {
    #[schema(value_type = schema::End)]
    outcome: &'static str,
    /// When it ended, milliseconds since the Unix epoch, by the store's clock.
    at: i64,
    /// How often it was tried; the last attempt is the one that delivered it. Absent where there was no message.
    attempts: Option<u8>,
    /// The due time it had; absent where that is not known.
    due_at: Option<i64>,
    /// How many milliseconds after its due time it was delivered. Of a delivery only.
    late_by_ms: Option<u64>,
    /// The `version` that moved. Of `moved` only.
    version: Option<String>,
}

impl BecameView {
    pub fn new(outcome: &Outcome) -> Self {
        let due_at = outcome.due_at.as_millis();
        Self {
            outcome: outcome.end.as_str(),
            at: outcome.at.as_millis(),
            attempts: outcome.was_there().then(|| outcome.attempts()),
            due_at: (due_at != 0).then_some(due_at),
            version: (outcome.end == End::Moved).then(|| outcome.version().to_string()),
            late_by_ms: outcome.late_by().map(|by| u64::try_from(by.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}
