//! One side of a move, asked again while that can help, and what is counted.

use std::time::Duration;

use anyhow::Context as _;
use duetime_client::{Became, Client, ClientError, ListFilter, Message, Topic};
use duetime_core::Clock as _;

use crate::clock::SystemClock;
use crate::commands::import::line::{self, Line};

/// Messages of one page.
const PAGE: usize = 500;
/// Messages that a side is asked for at once.
pub(super) const ASKED: usize = 32;

/// How a node says that there is no such topic.
pub(super) const NO_TOPIC: &str = "unknown_topic";

/// Whether that is what a node says.
pub(super) fn is_no_topic(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == NO_TOPIC)
}

/// What became of the messages that were looked at.
#[derive(Debug, Default, serde::Serialize)]
pub(super) struct Tally {
    /// Taken out of the source and scheduled at the destination.
    pub moved: u64,
    /// Of them, those whose id was at the destination already: what is there stayed.
    pub there_before: u64,
    /// Cancelled on either side before it had moved.
    pub cancelled: u64,
    /// Delivered by the source before it had moved.
    pub delivered: u64,
    /// Changed at the source while it was copied, and copied again.
    pub changed: u64,
    /// Cannot be at the destination as it is, or has an id that is known there; stays at the source.
    pub refused: u64,
    /// A copy of which the two sides do not know any more whether its message is elsewhere. The copy is kept.
    pub unclear: u64,
}

impl Tally {
    pub fn shown(&self) -> String {
        let Self { moved, there_before, cancelled, delivered, changed, refused, unclear } = self;
        let mut text = format!("{moved} moved");
        let more = [
            (*there_before, "of them there before"),
            (*cancelled, "cancelled meanwhile"),
            (*delivered, "delivered by the source meanwhile"),
            (*changed, "changed meanwhile and copied again"),
            (*refused, "refused"),
            (*unclear, "unclear"),
        ];
        for (number, what) in more.into_iter().filter(|(number, _)| *number > 0) {
            text += &format!(", {number} {what}");
        }
        text
    }
}

/// One side of a move.
#[derive(Clone)]
pub(super) struct Side {
    pub client: Client,
    pub topic: String,
    /// How long the topic remembers what became of its messages.
    pub remember: Duration,
}

impl Side {
    /// A page of the topic behind `cursor`, each message with its payload in a line, and the next cursor.
    pub async fn page(&self, filter: &ListFilter, cursor: Option<&str>) -> anyhow::Result<(Vec<Line>, Option<String>)> {
        let ask = async || {
            let page = self.client.list_lines(&self.topic, filter, cursor, PAGE).await?;
            let next = page.next.clone();
            Ok((page.bytes().await?, next))
        };
        let (bytes, next) = self.client.again(ask).await?;
        let texts = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines = texts.map(|text| line::read(text).map_err(anyhow::Error::msg));
        let lines = lines.collect::<anyhow::Result<Vec<Line>>>();
        Ok((lines.with_context(|| format!("a line of {} cannot be read", self.topic))?, next))
    }

    /// Whether all that ended since that moment is remembered, milliseconds since the Unix epoch. A tenth of the window is left
    /// for clocks that differ, and for what is done upon the answer.
    pub fn remembers_since(&self, at: i64) -> bool {
        let window = i64::try_from(self.remember.as_millis()).unwrap_or(i64::MAX);
        SystemClock.now().as_millis().saturating_sub(at) < window - window / 10
    }

    /// The message with this id, or what is remembered of it.
    pub async fn message(&self, id: &str) -> Result<Result<Message, Option<Became>>, ClientError> {
        match self.client.message(&self.topic, id).await {
            Ok(lives) => Ok(Ok(lives)),
            Err(error) => match error.problem().filter(|problem| problem.code == "unknown_message") {
                Some(gone) => Ok(Err(gone.became.clone())),
                None => Err(error),
            },
        }
    }

    /// The topic; `None`: there is none.
    pub async fn find(&self) -> Result<Option<Topic>, ClientError> {
        match self.client.topic(&self.topic).await {
            Err(error) if is_no_topic(&error) => Ok(None),
            found => found.map(Some),
        }
    }
}
