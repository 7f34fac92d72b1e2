//! What answers say of a pause, as far as the caller may know.

use std::borrow::Cow;

use duetime_core::TopicRecord;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;

/// Why a topic is paused. What is absent was not said, or is not for this token.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct PauseView<'a> {
    /// As it was given. For tokens with the scope `view` or `admin`.
    #[schema(value_type = Option<String>)]
    pub reason: Option<Cow<'a, str>>,
    /// When the pause began, milliseconds since the Unix epoch, by the clock of the node that was asked.
    since: Option<i64>,
    /// The name of the token of whoever paused it, or gave the reason. For tokens with the scope `admin`.
    #[schema(value_type = Option<String>)]
    by: Option<Cow<'a, str>>,
    /// The sink through which it was paused; absent: by itself.
    #[schema(value_type = Option<String>)]
    sink: Option<Cow<'a, str>>,
}

impl<'a> PauseView<'a> {
    /// What is noted of the pause of a topic, if it is paused, as far as the caller may know.
    pub fn of(record: &'a TopicRecord, caller: &Caller) -> Option<Self> {
        let note = record.pause()?;
        Some(Self {
            reason: note.reason.as_deref().filter(|_| caller.sees_reasons()).map(Cow::from),
            since: note.since_ms,
            by: note.by.as_deref().filter(|_| caller.may_change_topics()).map(Cow::from),
            sink: note.sink.as_deref().map(Cow::from),
        })
    }

    /// The same, with texts of its own.
    pub fn into_owned(self) -> PauseView<'static> {
        let owned = |text: Option<Cow<'a, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        let Self { reason, since, by, sink } = self;
        PauseView { reason: owned(reason), since, by: owned(by), sink: owned(sink) }
    }
}
