//! Bulk plans as a store keeps them: small records next to the catalog, updated by compare-and-swap.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;

use crate::store_error::StoreError;

/// Plans that a store keeps.
pub const PLANS_MAX: usize = 128;
/// Bytes of one of them.
pub const PLAN_BYTES_MAX: usize = 16 << 10;

/// Plans by id. What is in them is their reader's business. Who carries them out asks: the router.
#[async_trait]
pub trait PlanStore: Send + Sync + fmt::Debug + 'static {
    /// All of them. O(plans).
    async fn plans(&self) -> Result<BTreeMap<String, String>, StoreError>;

    /// Puts `new` in place of `seen`; `None`: there is no such plan, or there is to be none any more. One step, and
    /// kept as safely as the record of a topic.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`]: it is another by now (which may be `new` itself, when an answer was lost).
    /// [`StoreError::Full`]: there are [`PLANS_MAX`] already, or `new` is longer than [`PLAN_BYTES_MAX`].
    async fn swap_plan(&self, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError>;
}

/// Refuses a plan that is too long.
///
/// # Errors
///
/// [`StoreError::Full`].
pub fn check_length(new: Option<&str>) -> Result<(), StoreError> {
    match new {
        Some(text) if text.len() > PLAN_BYTES_MAX => {
            Err(StoreError::Full(format!("a bulk plan has {PLAN_BYTES_MAX} bytes at most")))
        }
        _ => Ok(()),
    }
}

/// The refusal of one plan more than there may be.
#[must_use]
pub fn too_many() -> StoreError {
    StoreError::Full(format!("there are {PLANS_MAX} bulk plans already; delete some that have ended"))
}
