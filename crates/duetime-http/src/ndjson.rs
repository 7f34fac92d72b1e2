//! Cuts a stream of bytes into lines with bounded memory: a line over the bound is skipped, not kept.

use std::io::BufRead as _;

use bytes::{Buf as _, Bytes, BytesMut};

/// One line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// From 1.
    pub number: u64,
    /// Without its end; `None`: it was longer than the bound.
    pub bytes: Option<Bytes>,
}

/// See the module.
pub(crate) struct Lines {
    buffer: BytesMut,
    /// How much of the buffer is known to have no line end.
    searched: usize,
    skipping: bool,
    number: u64,
    bytes_max: usize,
}

impl Lines {
    /// Lines of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, skipping: false, number: 0, bytes_max }
    }

    /// Bytes that are kept.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// Takes the next piece of the stream.
    pub fn push(&mut self, chunk: &Bytes) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole line that is not blank.
    pub fn next(&mut self) -> Option<Line> {
        loop {
            let mut rest = &self.buffer[self.searched..];
            let passed = rest.skip_until(b'\n').expect("memory can be read");
            let end = self.searched + passed;
            if end == 0 || self.buffer[end - 1] != b'\n' || passed == 0 {
                self.searched = end;
                if self.buffer.len() > self.bytes_max {
                    self.skipping = true;
                    self.buffer.clear();
                    self.searched = 0;
                }
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
        let bytes = self.buffer.split().freeze();
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
        assert_eq!(cut(b"", 1, 5), vec![]);
    }
}
