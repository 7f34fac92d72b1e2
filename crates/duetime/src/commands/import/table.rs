//! What a source has, by hashes, held against the pages of a topic: one reading of the topic instead of a request for
//! each message.

use std::hash::RandomState;

use duetime_client::{Client, ClientError, ListFilter, NewMessage};
use duetime_core::Due;
use duetime_import::headers;

use super::expected::Expected;
use super::line;

/// Messages of one table, of 64 bytes each. A source with more is compared in several rounds, each of which reads the
/// topic once, and the source once, or twice where the topic has not all of it as it is.
const TABLE_MESSAGES_MAX: u64 = 2 << 20;
/// So many messages of a topic are read in the time in which one is asked for by its id.
const READ_IN_ONE_REQUEST: u64 = 10;
/// Messages of one page.
const PAGE: usize = 500;

/// One message of the source.
struct Row {
    id: u128,
    /// Of payload and headers.
    content: u64,
    due: Option<Due>,
    is_found: bool,
}

/// Some of the messages of a source.
pub(super) struct Table {
    hashers: [RandomState; 2],
    rows: Vec<Row>,
    is_sorted: bool,
}

/// How many rounds it takes to compare `of_source` messages with the pages of a topic that holds `of_topic`; `None`: to
/// ask for each by its id is quicker.
pub(super) fn rounds(of_source: u64, of_topic: u64) -> Option<u64> {
    let rounds = of_source.div_ceil(TABLE_MESSAGES_MAX).max(1);
    (of_topic.saturating_mul(rounds) <= of_source.saturating_mul(READ_IN_ONE_REQUEST)).then_some(rounds)
}

impl Table {
    pub(super) fn new() -> Self {
        Self { hashers: Default::default(), rows: Vec::new(), is_sorted: true }
    }

    fn key(&self, id: &str) -> u128 {
        let [first, second] = self.hashers.each_ref().map(|hasher| std::hash::BuildHasher::hash_one(hasher, id));
        u128::from(first) << 64 | u128::from(second)
    }

    fn content(&self, message: &NewMessage) -> u64 {
        std::hash::BuildHasher::hash_one(&self.hashers[0], (&message.payload[..], headers(message)))
    }

    /// The round that a message is compared in. It is the same each time it is read.
    pub(super) fn round(&self, message: &NewMessage, rounds: u64) -> u64 {
        let key = self.key(message.id.as_deref().unwrap_or_default());
        (key % u128::from(rounds)) as u64
    }

    pub(super) fn add(&mut self, message: &NewMessage) {
        let id = self.key(message.id.as_deref().unwrap_or_default());
        self.rows.push(Row { id, content: self.content(message), due: message.due, is_found: false });
        self.is_sorted = false;
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// Those of this id, none of which was found yet.
    fn open(&mut self, id: &str) -> impl Iterator<Item = &mut Row> {
        if !self.is_sorted {
            self.rows.sort_unstable_by_key(|row| row.id);
            self.is_sorted = true;
        }
        let key = self.key(id);
        let begin = self.rows.partition_point(|row| row.id < key);
        self.rows[begin..].iter_mut().take_while(move |row| row.id == key).filter(|row| !row.is_found)
    }

    /// Takes out a message that the topic has, and answers it as the source asked for it; `None`: the source has none
    /// such, or it has another due time, payload or header there.
    fn take_same(&mut self, mut there: NewMessage, expected: &Expected) -> Option<NewMessage> {
        let content = self.content(&there);
        let id = there.id.clone().unwrap_or_default();
        let is_same = |row: &&mut Row| row.content == content && expected.is_as_asked(row.due, there.due);
        let row = self.open(&id).find(is_same)?;
        row.is_found = true;
        there.due = row.due;
        Some(there)
    }

    /// Takes out a message of the source that was not found; false: it was, or is not of this table.
    pub(super) fn take_open(&mut self, message: &NewMessage) -> bool {
        let content = self.content(message);
        let is_it = |row: &&mut Row| row.content == content && row.due == message.due;
        let row = self.open(message.id.as_deref().unwrap_or_default()).find(is_it);
        row.map(|row| row.is_found = true).is_some()
    }

    /// How many were not found.
    pub(super) fn left(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_found).count()
    }

    /// Reads the topic, and gives what is there as the source has it to `same`. What cannot be read, or changes its
    /// place meanwhile, stays in the table.
    pub(super) async fn compare(
        &mut self,
        client: &Client,
        topic: &str,
        expected: &Expected,
        mut same: impl FnMut(&NewMessage),
    ) -> Result<(), ClientError> {
        let all = ListFilter::default();
        let page = async |cursor: Option<&str>| {
            client.again(async || client.list_lines(topic, &all, cursor, PAGE).await).await
        };
        let mut lines = match page(None).await {
            Ok(lines) => lines,
            // A token of scope `produce` alone may ask for single messages.
            Err(ClientError::Refused(problem)) if problem.status == 403 => return Ok(()),
            Err(error) => return Err(error),
        };
        loop {
            let next = lines.next.clone();
            let following = async {
                match &next {
                    Some(cursor) => Some(page(Some(cursor)).await),
                    None => None,
                }
            };
            let (bytes, following) = tokio::join!(lines.bytes(), following);
            match bytes {
                Ok(bytes) => {
                    let read = bytes.split(|byte| *byte == b'\n').filter_map(|line| line::read(line).ok());
                    for there in read {
                        if let Some(message) = self.take_same(there.message, expected) {
                            same(&message);
                        }
                    }
                }
                Err(error) if error.is_passing() => {}
                Err(error) => return Err(error),
            }
            match following {
                Some(following) => lines = following?,
                None => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duetime_core::Timestamp;

    use super::*;

    fn message(id: &str, due: i64, payload: &str) -> NewMessage {
        NewMessage::new(payload.to_owned()).id(id).due(Due::At(Timestamp::from_millis(due)))
    }

    #[test]
    fn a_table_finds_what_is_the_same_once_and_keeps_the_rest() {
        let begun = Timestamp::from_millis(0);
        let expected = Expected { smear: Duration::from_millis(5), delay: Duration::ZERO, begun };
        let mut table = Table::new();
        for (id, due, payload) in [("a", 10, "x"), ("b", 10, "x"), ("c", 10, "x"), ("b", 10, "y"), ("d", 10, "x")] {
            table.add(&message(id, due, payload));
        }
        let mut same = |id: &str, due: i64, payload: &str| table.take_same(message(id, due, payload), &expected);
        assert_eq!(same("a", 14, "x").map(|found| found.due), Some(Some(Due::At(Timestamp::from_millis(10)))));
        assert!(same("a", 10, "x").is_none(), "it was found already");
        assert!(same("b", 10, "y").is_some() && same("b", 10, "z").is_none());
        assert!(same("c", 16, "x").is_none() && same("c", 10, "y").is_none() && same("e", 10, "x").is_none());
        assert_eq!(table.left(), 3);
        assert!(!table.take_open(&message("a", 10, "x")) && !table.take_open(&message("b", 10, "y")));
        assert!(table.take_open(&message("b", 10, "x")) && !table.take_open(&message("b", 10, "x")));
        assert!(table.take_open(&message("c", 10, "x")) && table.take_open(&message("d", 10, "x")));
        assert_eq!(table.left(), 0);
    }

    #[test]
    fn a_table_is_bounded_and_a_large_topic_is_not_read_for_a_few_messages() {
        assert_eq!(rounds(1, 10), Some(1));
        assert_eq!(rounds(1, 11), None);
        assert_eq!(rounds(0, 0), Some(1));
        assert_eq!(rounds(TABLE_MESSAGES_MAX, TABLE_MESSAGES_MAX), Some(1));
        assert_eq!(rounds(TABLE_MESSAGES_MAX + 1, TABLE_MESSAGES_MAX + 1), Some(2));
        assert!(size_of::<Row>() <= 64);
        let table = Table::new();
        let rounds: Vec<u64> = (0..64).map(|n| table.round(&message(&n.to_string(), 1, ""), 3)).collect();
        assert!((0..3).all(|round| rounds.contains(&round)) && rounds.iter().all(|round| *round < 3));
    }
}
