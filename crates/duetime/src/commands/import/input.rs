//! Where messages come from: the lines of a file, or another system, one page after the other.

use std::time::Duration;

use anyhow::Context as _;
use duetime_client::NewMessage;
use duetime_core::limits::PAYLOAD_BYTES_MAX;
use duetime_import::{Item, Place, Source};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use super::line;

/// A page of lines ends with so many, or when they have so many bytes.
const LINES: usize = 500;
const LINES_BYTES: usize = 1 << 20;
/// No line of a message is longer: its payload in base64 or escaped, and the rest.
const LINE_BYTES_MAX: u64 = 6 * PAYLOAD_BYTES_MAX + (1 << 20);
/// What is kept of one that is.
const BEGINNING: usize = 1000;

/// What became of one entry before it was sent.
pub(super) enum Entry {
    Message(Box<NewMessage>),
    Refused {
        /// For people: which it is, and why.
        why: String,
        /// As it stands in the file, with why.
        line: Vec<u8>,
    },
    /// A dead letter, or an entry of the source that is not delayed.
    Left,
}

/// Where messages come from.
pub(super) enum Input {
    File { reader: BufReader<Box<dyn AsyncRead + Send + Unpin>>, number: u64, with_dead: bool },
    Source { source: Source, place: Option<Place> },
}

impl Input {
    /// The lines of a file, `-` for standard input.
    pub async fn file(name: &str, with_dead: bool) -> anyhow::Result<Self> {
        let reader: Box<dyn AsyncRead + Send + Unpin> = if name == "-" {
            Box::new(tokio::io::stdin())
        } else {
            Box::new(tokio::fs::File::open(name).await.with_context(|| format!("reading {name}"))?)
        };
        Ok(Self::File { reader: BufReader::with_capacity(64 << 10, reader), number: 0, with_dead })
    }

    pub fn source(source: Source) -> Self {
        Self::Source { source, place: Some(Place::default()) }
    }

    /// The next entries, not many; `None`: these were all. A page may be empty.
    pub async fn page(&mut self) -> anyhow::Result<Option<Vec<Entry>>> {
        match self {
            Self::Source { source, place } => {
                let Some(at) = *place else { return Ok(None) };
                let page = source.page(at).await.with_context(|| format!("reading {}", source.at()))?;
                *place = page.next;
                Ok(Some(page.items.into_iter().map(of_source).collect()))
            }
            Self::File { reader, number, with_dead } => {
                let (mut entries, mut bytes) = (Vec::new(), 0);
                while entries.len() < LINES && bytes < LINES_BYTES {
                    let mut line = Vec::new();
                    let read =
                        reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await.context("reading lines")?;
                    if read == 0 {
                        break;
                    }
                    *number += 1;
                    bytes += read;
                    if !line.ends_with(b"\n") && read as u64 == LINE_BYTES_MAX {
                        pass_over_the_rest(reader).await.context("reading lines")?;
                        let why = format!("it has more than {LINE_BYTES_MAX} bytes, which no message has");
                        entries.push(refused_line(&line[..BEGINNING], *number, &why));
                        continue;
                    }
                    if !line.trim_ascii().is_empty() {
                        entries.push(of_line(line, *number, *with_dead));
                    }
                }
                Ok((bytes > 0).then_some(entries))
            }
        }
    }
}

fn of_source(item: Item) -> Entry {
    match item {
        Item::Message(message) => Entry::Message(Box::new(message)),
        Item::Refused { id, why } => {
            let (why, line) = refusal(&id, &why);
            Entry::Refused { why, line }
        }
        Item::Other => Entry::Left,
    }
}

/// What is said of an entry that can be no message, and its line in the file of what was refused.
pub(super) fn refusal(id: &str, why: &str) -> (String, Vec<u8>) {
    let line = serde_json::json!({ "id": id, "refused": why });
    (format!("{id}: {why}"), line.to_string().into_bytes())
}

fn of_line(line: Vec<u8>, number: u64, with_dead: bool) -> Entry {
    match line::read(&line) {
        Ok(read) if read.dead && !with_dead => Entry::Left,
        Ok(read) => Entry::Message(Box::new(read.message)),
        Err(why) => refused_line(line.trim_ascii(), number, &why),
    }
}

fn refused_line(line: &[u8], number: u64, why: &str) -> Entry {
    let why = format!("line {number}: {}", line::beginning(why));
    Entry::Refused { line: line::with_reason(line, &why), why }
}

/// Reads up to the end of a line, and keeps nothing of it.
async fn pass_over_the_rest(reader: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<()> {
    loop {
        let bytes = reader.fill_buf().await?;
        let (end, left) = (bytes.iter().position(|byte| *byte == b'\n'), bytes.len());
        reader.consume(end.map_or(left, |end| end + 1));
        if end.is_some() || left == 0 {
            return Ok(());
        }
    }
}

/// Lets so many messages a second pass.
pub(crate) struct Rate {
    per_second: Option<u32>,
    begun: tokio::time::Instant,
    passed: u64,
}

impl Rate {
    pub fn new(per_second: Option<u32>) -> Self {
        Self { per_second, begun: tokio::time::Instant::now(), passed: 0 }
    }

    /// Waits until `messages` more may pass.
    pub async fn pass(&mut self, messages: usize) {
        let Some(per_second) = self.per_second else { return };
        let at = Duration::from_secs_f64(self.passed as f64 / f64::from(per_second));
        tokio::time::sleep_until(self.begun + at).await;
        self.passed += messages as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_lets_no_more_pass_in_a_second_and_none_lets_all_pass() {
        let begun = tokio::time::Instant::now();
        let mut rate = Rate::new(Some(100));
        for _ in 0..10 {
            rate.pass(50).await;
        }
        assert_eq!(begun.elapsed().as_millis(), 4_500);
        let mut free = Rate::new(None);
        free.pass(1_000_000).await;
        assert_eq!(begun.elapsed().as_millis(), 4_500);
    }
}
