//! Small records beside the catalog, updated by compare-and-swap: bulk plans, and sinks that were put by the API.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;

use crate::put_sinks::SinkRecord;
use crate::store_error::StoreError;

/// Bulk plans that a store keeps.
pub const PLANS_MAX: usize = 128;
/// Bytes of one of them.
pub const PLAN_BYTES_MAX: usize = 16 << 10;

/// Sinks that a store keeps.
pub const SINKS_MAX: usize = 256;
/// Bytes of the record of one of them.
pub const SINK_BYTES_MAX: usize = 4 << 10;

/// What records are of: each kind has its own names and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Bulk plans by their ids.
    Plan,
    /// Sinks that were put by the API, by their names.
    Sink,
}

impl RecordKind {
    /// How many there may be.
    #[must_use]
    pub const fn most(self) -> usize {
        match self {
            Self::Plan => PLANS_MAX,
            Self::Sink => SINKS_MAX,
        }
    }

    /// Bytes of one.
    #[must_use]
    pub const fn bytes_max(self) -> usize {
        match self {
            Self::Plan => PLAN_BYTES_MAX,
            Self::Sink => SINK_BYTES_MAX,
        }
    }

    /// The version of a record, of a kind in which no version comes twice; `None`: it has none.
    #[must_use]
    pub fn version_of(self, text: &str) -> Option<u64> {
        match self {
            Self::Plan => None,
            Self::Sink => serde_json::from_str(text).ok().map(|record: SinkRecord| record.version),
        }
    }

    /// The name of an operation, which is another one for each kind.
    pub(crate) fn op(self, plan: &'static str, sink: &'static str) -> &'static str {
        match self {
            Self::Plan => plan,
            Self::Sink => sink,
        }
    }

    /// Refuses a record that is too long.
    ///
    /// # Errors
    ///
    /// [`StoreError::RecordLimit`].
    pub fn check_length(self, new: Option<&str>) -> Result<(), StoreError> {
        let most = self.bytes_max();
        if new.is_none_or(|text| text.len() <= most) {
            return Ok(());
        }
        Err(StoreError::RecordLimit(match self {
            Self::Plan => format!("a bulk plan has {most} bytes at most"),
            Self::Sink => format!("a sink has {most} bytes at most with its settings; shorten them"),
        }))
    }

    /// The refusal of one more than there may be.
    #[must_use]
    pub fn too_many(self) -> StoreError {
        let most = self.most();
        StoreError::RecordLimit(match self {
            Self::Plan => format!("{most} bulk plans are kept at most; delete some that have ended"),
            Self::Sink => {
                format!(
                    "{most} sinks that were put by the API are kept at most; delete one that no topic delivers through"
                )
            }
        })
    }
}

/// All records of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Their texts.
    pub by_name: BTreeMap<String, String>,
    /// The highest version ([`RecordKind::version_of`]) that any of the kind ever had, those that are gone too; 0: none had
    /// one.
    pub last_version: u64,
}

/// Small records by their names. What is in them, but for their version, is their reader's business. Who changes them asks:
/// the router.
#[async_trait]
pub trait RecordStore: Send + Sync + fmt::Debug + 'static {
    /// All of a kind. O(records).
    async fn records(&self, kind: RecordKind) -> Result<Records, StoreError>;

    /// Puts `new` in place of `seen`; `None`: there is no such record, or there is to be none any more. One step, and
    /// kept as safely as the record of a topic.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`]: it is another by now (which may be `new` itself, when an answer was lost), or `new` has a
    /// version that is not above [`Records::last_version`].
    /// [`StoreError::RecordLimit`]: there are [`RecordKind::most`] already, or `new` is longer than
    /// [`RecordKind::bytes_max`]. [`StoreError::Full`]: the store has no memory for it.
    async fn swap_record(
        &self,
        kind: RecordKind,
        name: &str,
        seen: Option<&str>,
        new: Option<&str>,
    ) -> Result<(), StoreError>;
}
