//! Whether each message of the source is in the topic, as it is in the source.

use duetime_client::{Client, ClientError, NewMessage};
use duetime_core::{Clock as _, Due, Timestamp};
use duetime_import::{Fingerprint, headers};
use futures::StreamExt as _;

use super::expected::Expected;
use super::input::{Entry, Input};
use super::table::{self, Table};
use crate::clock::SystemClock;
use crate::commands::output;

/// Messages that are asked for at once.
const AT_ONCE: usize = 32;
/// Differences that are shown one by one; the rest is counted.
const SHOWN_MAX: u64 = 20;

/// What was found.
#[derive(Default, serde::Serialize)]
pub(super) struct Verified {
    /// There, with the due time, the payload and the headers of the source.
    same: u64,
    /// There, with another due time, payload or header.
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
            let mut found = NewMessage::new(message.payload()).id(id);
            let former = message.previous.iter().map(duetime_client::Previous::header);
            found.headers = message.headers.into_iter().chain(former).collect();
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

    fn add_same(&mut self, message: &NewMessage) {
        self.source.add(message);
        self.topic.add(message);
        self.same += 1;
    }

    fn add(&mut self, message: &NewMessage, found: &Found, expected: &Expected) {
        let id = message.id.as_deref().unwrap_or_default();
        self.source.add(message);
        let wrong = match found {
            Found::There(there) => {
                let is_other = !expected.is_as_asked(message.due, there.due)
                    || there.payload != message.payload
                    || headers(there) != headers(message);
                // What is as it was asked for counts so: by its delay, and without the smear.
                self.topic.add(if is_other { there } else { message });
                self.same += u64::from(!is_other);
                self.different += u64::from(is_other);
                is_other.then_some("has another due time, payload or header in the topic")
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

/// What a source is compared with.
pub(super) struct Verify<'a, O, R> {
    pub client: &'a Client,
    pub topic: &'a str,
    /// Opens the source from its beginning.
    pub open: O,
    /// What the topic does not take.
    pub is_refused: R,
    pub expected: &'a Expected,
    /// Messages that the source had when it was imported.
    pub of_source: u64,
}

impl<O: AsyncFn() -> anyhow::Result<Input>, R: Fn(&NewMessage) -> bool> Verify<'_, O, R> {
    /// Reads the source again and compares it with the topic: by its pages, and what these do not settle, or all where
    /// the topic is far larger than the source, by its id.
    pub async fn run(&self) -> anyhow::Result<Verified> {
        let mut verified = Verified::default();
        let there = self.client.topic(self.topic).await?;
        let of_topic = there.scheduled.saturating_add(there.in_flight);
        let Some(rounds) = table::rounds(self.of_source, of_topic) else {
            let mut refused = 0;
            self.ask_for(&mut verified, &mut refused, |_| true).await?;
            verified.refused = refused;
            return Ok(verified);
        };
        let mut table = Table::new();
        for round in 0..rounds {
            let mut refused = 0;
            table.clear();
            let mut input = (self.open)().await?;
            while let Some(messages) = self.page(&mut input, &mut refused).await? {
                let of_round: Vec<_> =
                    messages.into_iter().filter(|message| table.round(message, rounds) == round).collect();
                of_round.iter().for_each(|message| table.add(message));
            }
            verified.refused = refused;
            table.compare(self.client, self.topic, self.expected, |message| verified.add_same(message)).await?;
            if table.left() > 0 {
                self.ask_for(&mut verified, &mut 0, |message| table.take_open(message)).await?;
            }
            // The source had them a moment ago, and changed since: nobody knows whether they are whole.
            verified.missing += table.left() as u64;
        }
        Ok(verified)
    }

    /// The next messages of the source; what is none, or is refused by the topic, is counted.
    async fn page(&self, input: &mut Input, refused: &mut u64) -> anyhow::Result<Option<Vec<NewMessage>>> {
        let Some(entries) = input.page().await? else { return Ok(None) };
        let mut messages = Vec::with_capacity(entries.len());
        for entry in entries {
            match entry {
                Entry::Message(message) if !(self.is_refused)(&message) => messages.push(*message),
                Entry::Message(_) | Entry::Refused { .. } => *refused += 1,
                Entry::Left => {}
            }
        }
        Ok(Some(messages))
    }

    /// Asks for each message of the source that is `wanted` by its id.
    async fn ask_for(
        &self,
        verified: &mut Verified,
        refused: &mut u64,
        mut wanted: impl FnMut(&NewMessage) -> bool,
    ) -> anyhow::Result<()> {
        let (client, topic) = (self.client, self.topic);
        let mut input = (self.open)().await?;
        while let Some(messages) = self.page(&mut input, refused).await? {
            let wanted: Vec<_> = messages.into_iter().filter(|message| wanted(message)).collect();
            let mut found = futures::stream::iter(wanted)
                .map(|message| async move {
                    let id = message.id.clone().unwrap_or_default();
                    let found = find(client, topic, &id).await?;
                    Ok::<_, ClientError>((message, found))
                })
                .buffer_unordered(AT_ONCE);
            while let Some(one) = found.next().await {
                let (message, found) = one?;
                verified.add(&message, &found, self.expected);
            }
        }
        Ok(())
    }
}
