//! Whether each message of the source is in the topic, as it is in the source.

use std::time::Duration;

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

/// By what it is judged.
pub(super) struct Expected {
    /// How much later than asked for the topic may make a message due.
    pub smear: Duration,
    /// After what a message is due that says nothing of it.
    pub delay: Duration,
    /// When the import began, from which delays count at the earliest.
    pub begun: Timestamp,
}

impl Expected {
    /// Whether a due time is the one that was asked for. A delay was counted from a moment of the import.
    fn is_as_asked(&self, asked: Option<Due>, there: Option<Due>) -> bool {
        let (Some(Due::At(asked)), Some(Due::At(there))) = (asked, there) else { return true };
        (0..=self.smear.as_millis() as i64).contains(&(there.as_millis() - asked.as_millis()))
    }

    /// Whether a message may be delivered by now.
    fn is_due(&self, asked: Option<Due>, now: Timestamp) -> bool {
        let at = match asked {
            Some(Due::At(at)) => at,
            Some(Due::In(delay)) => self.begun.plus(delay),
            None => self.begun.plus(self.delay),
        };
        at <= now
    }
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

    fn add(&mut self, message: &NewMessage, found: &Found, expected: &Expected) {
        let id = message.id.as_deref().unwrap_or_default();
        self.source.add(message);
        let wrong = match found {
            Found::There(there) => {
                let is_other = !expected.is_as_asked(message.due, there.due) || there.payload != message.payload;
                // What is as it was asked for counts so: by its delay, and without the smear.
                self.topic.add(if is_other { there } else { message });
                self.same += u64::from(!is_other);
                self.different += u64::from(is_other);
                is_other.then_some("has another due time or payload in the topic")
            }
            Found::Absent => {
                let is_due = expected.is_due(message.due, SystemClock.now());
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
    expected: &Expected,
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
            verified.add(&message, &found, expected);
        }
    }
    Ok(verified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smear_makes_no_message_another_one_and_a_delay_that_is_over_none_missing() {
        let begun = Timestamp::from_millis(1_924_992_000_000);
        let (smear, delay) = (Duration::from_secs(2), Duration::from_secs(10));
        let expected = Expected { smear, delay, begun };
        let at = |later: i64| Some(Due::At(Timestamp::from_millis(begun.as_millis() + later)));
        let as_asked = [0, 2_000, 2_001, -1].map(|later| expected.is_as_asked(at(0), at(later)));
        assert_eq!(as_asked, [true, true, false, false]);
        let hour = Some(Due::In(Duration::from_secs(3_600)));
        assert!(expected.is_as_asked(hour, at(0)) && expected.is_as_asked(None, at(0)));
        for (asked, due_after) in [(at(500), 500), (Some(Due::In(smear)), 2_000), (None, 10_000)] {
            let is_due = |later: i64| expected.is_due(asked, Timestamp::from_millis(begun.as_millis() + later));
            assert_eq!([due_after - 1, due_after].map(is_due), [false, true], "{asked:?}");
        }
    }
}
