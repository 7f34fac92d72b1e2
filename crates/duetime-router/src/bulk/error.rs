//! Why a bulk plan could not be made or changed.

use duetime_core::StoreError;

use crate::error::RouteError;

/// Why a plan could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// There is none of that id for the topic.
    #[error("there is no such plan")]
    Unknown,
    /// It is in another state; the sentence says what to do.
    #[error("{0}")]
    Refused(String),
    /// As many as there may be are running; the sentence says what to do.
    #[error("{0}")]
    TooMany(String),
    /// The topic's or the store's.
    #[error(transparent)]
    Route(#[from] RouteError),
}

impl From<StoreError> for PlanError {
    fn from(error: StoreError) -> Self {
        Self::Route(error.into())
    }
}
