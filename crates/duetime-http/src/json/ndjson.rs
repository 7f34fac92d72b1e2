//! Cuts a stream of bytes into lines with bounded memory: a line over the bound is skipped, not kept.

use axum::http::{HeaderMap, header};
use std::io::BufRead as _;

/// The media type of lines of JSON.
pub(crate) const NDJSON: &str = "application/x-ndjson";

/// Whether the caller asks for lines of JSON (RFC 9110, 12.5.1): a weight of 0 is a refusal.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|text| text.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(NDJSON));
        let weight = parts.find_map(|part| part.strip_prefix(['q', 'Q'])?.trim_start().strip_prefix('='));
        is_named && weight.is_none_or(|weight| weight.trim().parse() != Ok(0.0))
    })
}

use bytes::{Buf as _, Bytes, BytesMut};

use crate::json::spool::Spool;

/// The beginning of a longer line is kept in memory of its own.
const BUFFERED_BYTES_MAX: usize = 128 << 10;

/// One line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// From 1.
    pub number: u64,
    /// Without its end; `None`: it was longer than the bound.
    pub bytes: Option<Bytes>,
}

/// Cuts a stream of bytes into lines with bounded memory: a line over the bound is skipped, not kept.
pub(crate) struct Lines {
    buffer: BytesMut,
    /// The beginning of a long line; the buffer is empty then.
    long: Option<Spool>,
    /// A long line that is whole.
    ready: Option<Line>,
    /// How much of the buffer is known to have no line end.
    searched: usize,
    skipping: bool,
    number: u64,
    bytes_max: usize,
}

impl Lines {
    /// Lines of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), long: None, ready: None, searched: 0, skipping: false, number: 0, bytes_max }
    }

    /// Bytes that are kept.
    pub fn held(&self) -> usize {
        self.buffer.len() + self.long.as_ref().map_or(0, Spool::len)
    }

    /// Takes the next piece of the stream.
    pub fn push(&mut self, chunk: &Bytes) {
        let Some(mut long) = self.long.take() else {
            self.buffer.extend_from_slice(chunk);
            return;
        };
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let piece = &chunk[..end.unwrap_or(chunk.len())];
        let fits = long.len() + piece.len() <= self.bytes_max;
        if fits {
            long.push(piece);
        }
        match end {
            None if fits => self.long = Some(long),
            None => self.skipping = true,
            Some(end) => {
                self.buffer.extend_from_slice(&chunk[end + 1..]);
                self.skipping = !fits;
                self.ready = self.line(long.freeze());
            }
        }
    }

    /// What becomes of a buffer that has no line end.
    fn keep_beginning(&mut self) {
        if self.buffer.len() > self.bytes_max {
            self.skipping = true;
        }
        if self.skipping {
            self.buffer = BytesMut::new();
            self.searched = 0;
        } else if self.buffer.len() > BUFFERED_BYTES_MAX
            && let Ok(mut long) = Spool::new(self.bytes_max)
        {
            long.push(&std::mem::take(&mut self.buffer));
            (self.long, self.searched) = (Some(long), 0);
        }
    }

    /// The next whole line that is not blank.
    pub fn next(&mut self) -> Option<Line> {
        if let Some(line) = self.ready.take() {
            return Some(line);
        }
        loop {
            let mut rest = &self.buffer[self.searched..];
            let passed = rest.skip_until(b'\n').expect("memory can be read");
            let end = self.searched + passed;
            if end == 0 || self.buffer[end - 1] != b'\n' || passed == 0 {
                self.searched = end;
                self.keep_beginning();
                return None;
            }
            self.searched = 0;
            let bytes = self.buffer.split_to(end).freeze();
            if let Some(line) = self.line(bytes.slice(..end - 1)) {
                return Some(line);
            }
        }
    }

    /// What stands behind the last line end.
    pub fn last(&mut self) -> Option<Line> {
        let bytes = self.long.take().map_or_else(|| self.buffer.split().freeze(), Spool::freeze);
        self.searched = 0;
        if bytes.is_empty() && !self.skipping {
            return None;
        }
        self.line(bytes)
    }

    fn line(&mut self, mut bytes: Bytes) -> Option<Line> {
        self.number += 1;
        if std::mem::take(&mut self.skipping) || bytes.len() > self.bytes_max {
            return Some(Line { number: self.number, bytes: None });
        }
        if bytes.last() == Some(&b'\r') {
            bytes.truncate(bytes.len() - 1);
        }
        while bytes.first().is_some_and(u8::is_ascii_whitespace) {
            bytes.advance(1);
        }
        (!bytes.is_empty()).then_some(Line { number: self.number, bytes: Some(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_asked_for_by_their_media_type_however_it_is_written_and_not_by_a_weight_of_nothing() {
        let asked =
            |accept: &'static str| is_accepted(&HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]));
        for accept in
            ["application/x-ndjson", "text/html, APPLICATION/X-NDJSON;q=0.5", "application/x-ndjson; v=1; q = 1"]
        {
            assert!(asked(accept), "{accept}");
        }
        for accept in
            ["*/*", "application/json", "application/x-ndjson;q=0", "application/x-ndjson; Q=0.000", "x-ndjson"]
        {
            assert!(!asked(accept), "{accept}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }

    fn cut(text: &[u8], piece: usize, bytes_max: usize) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut lines = Lines::new(bytes_max);
        let mut found = Vec::new();
        for chunk in text.chunks(piece) {
            lines.push(&Bytes::copy_from_slice(chunk));
            found.extend(std::iter::from_fn(|| lines.next()));
            assert!(lines.buffer.len() <= bytes_max + piece);
        }
        found.extend(lines.last());
        found.into_iter().map(|line| (line.number, line.bytes.map(|bytes| bytes.to_vec()))).collect()
    }

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        let text = b"one\r\n\n  \nfour\nmuch too long a line\nsix";
        let wanted =
            vec![(1, Some(b"one".to_vec())), (4, Some(b"four".to_vec())), (5, None), (6, Some(b"six".to_vec()))];
        for piece in 1..=text.len() {
            assert_eq!(cut(text, piece, 10), wanted, "pieces of {piece}");
        }
        assert_eq!(cut(b"a line that never ends", 3, 5), vec![(1, None)]);
        let long = [vec![b'a'; 300 << 10], vec![b'b'; 500 << 10], vec![b'c'; 700 << 10], b"d".to_vec()];
        let text = [&long[0][..], b"\n", &long[1], b"\r\n", &long[2], b"\n", &long[3]].concat();
        let [a, b, _, d] = long;
        for piece in [4 << 10, 256 << 10, 290 << 10, 512 << 10, 2 << 20] {
            let wanted = vec![(1, Some(a.clone())), (2, Some(b.clone())), (3, None), (4, Some(d.clone()))];
            assert!(cut(&text, piece, 600 << 10) == wanted, "pieces of {piece}");
            assert!(cut(&text[..799 << 10], piece, 600 << 10)[1].1.as_ref().unwrap().len() > 498 << 10, "{piece}");
        }
        assert_eq!(cut(b"", 1, 5), vec![]);
    }
}
