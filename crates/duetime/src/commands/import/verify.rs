//! Whether each message of the source is in the topic, as it is in the source.

use duetime_client::{Client, ClientError, NewMessage};
use duetime_core::{Clock as _, Due, Timestamp};
use duetime_import::Fingerprint;
use futures::StreamExt as _;

use super::input::{Entry, Input};
use crate::clock::SystemClock;
use crate::commands::output;

/// Messages that are asked for at once.
const AT_ONCE: usize = 32;
/// Differences that are shown one by one; the rest is counted.
const SHOWN_MAX: u64 = 20;

/// What was found.
#[derive(Default, serde::Serialize)]
pub(super) struct Verified {
    /// There, with the due time and the payload of the source.
    same: u64,
    /// There, with another due time or payload.
    different: u64,
    /// Not there, and due already: delivered since, or cancelled.
    gone: u64,
    /// Not there, and not due yet.
    missing: u64,
    /// What the topic does not take, and so cannot have.
    refused: u64,
    #[serde(skip)]
    source: Fingerprint,
    #[serde(skip)]
    topic: Fingerprint,
}

enum Found {
    There(NewMessage),
    Absent,
}

async fn find(client: &Client, topic: &str, id: &str) -> Result<Found, ClientError> {
    match client.message(topic, id).await {
        Ok(message) => {
            let found = NewMessage::new(message.payload()).id(id);
            Ok(Found::There(found.due(Due::At(Timestamp::from_millis(message.due_at)))))
        }
        Err(ClientError::Refused(problem)) if problem.code == "unknown_message" => Ok(Found::Absent),
        Err(error) => Err(error),
    }
}

impl Verified {
    pub fn is_whole(&self) -> bool {
        self.different == 0 && self.missing == 0
    }

    fn add(&mut self, message: &NewMessage, found: &Found) {
        let id = message.id.as_deref().unwrap_or_default();
        self.source.add(message);
        let wrong = match found {
            Found::There(there) => {
                self.topic.add(there);
                // A delay was counted from the moment of the import.
                let is_moved = matches!(message.due, Some(Due::At(_))) && there.due != message.due;
                let is_other = is_moved || there.payload != message.payload;
                self.same += u64::from(!is_other);
                self.different += u64::from(is_other);
                is_other.then_some("has another due time or payload in the topic")
            }
            Found::Absent => {
                let is_due = matches!(message.due, Some(Due::At(at)) if at <= SystemClock.now());
                self.gone += u64::from(is_due);
                self.missing += u64::from(!is_due);
                (!is_due).then_some("is not in the topic")
            }
        };
        if let Some(wrong) = wrong
            && self.different + self.missing <= SHOWN_MAX
        {
            output::complain(&format!("{id} {wrong}"));
        }
    }

    pub fn shown(&self) -> String {
        let Self { same, different, gone, missing, refused, source, topic } = self;
        let (count, whole) = (topic.count, if source == topic { "equal" } else { "not equal" });
        format!(
            "verified: {same} the same, {different} different, {gone} gone that were due, {missing} missing, {refused} refused; \
             {} in the source with hash {source}, {count} in the topic with {topic}: {whole}",
            source.count
        )
    }
}

/// Reads the source again, and each message of it in the topic.
pub(super) async fn verify(
    client: &Client,
    topic: &str,
    mut input: Input,
    is_refused: impl Fn(&NewMessage) -> bool,
) -> anyhow::Result<Verified> {
    let mut verified = Verified::default();
    while let Some(entries) = input.page().await? {
        let mut messages = Vec::new();
        for entry in entries {
            match entry {
                Entry::Message(message) if !is_refused(&message) => messages.push(*message),
                Entry::Message(_) | Entry::Refused { .. } => verified.refused += 1,
                Entry::Left => {}
            }
        }
        let mut found = futures::stream::iter(messages)
            .map(|message| async move {
                let id = message.id.clone().unwrap_or_default();
                let found = find(client, topic, &id).await?;
                Ok::<_, ClientError>((message, found))
            })
            .buffer_unordered(AT_ONCE);
        while let Some(one) = found.next().await {
            let (message, found) = one?;
            verified.add(&message, &found);
        }
    }
    Ok(verified)
}
