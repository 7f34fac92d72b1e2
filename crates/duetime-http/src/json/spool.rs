//! Memory for one large body, taken from the system and given back to it at once.
//!
//! The allocator keeps what is given back to it for a while, and grows a buffer by copying it: bodies that come and go
//! would take several times what they hold. Here the whole length is reserved, and only pages that were written cost
//! anything.

use std::io;

use bytes::Bytes;
use memmap2::{MmapMut, MmapOptions};

/// Memory for one large body, taken from the system and given back to it at once.
pub(crate) struct Spool {
    map: MmapMut,
    length: usize,
}

impl Spool {
    /// Has space for `bytes_max`.
    pub fn new(bytes_max: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(bytes_max.max(1)).no_reserve_swap().map_anon()?;
        Ok(Self { map, length: 0 })
    }

    /// Bytes that were written.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Adds a piece, for which there must be space.
    pub fn push(&mut self, piece: &[u8]) {
        let end = self.length + piece.len();
        self.map[self.length..end].copy_from_slice(piece);
        self.length = end;
    }

    /// What was written; the memory goes with the last clone of it.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Spool {
    fn as_ref(&self) -> &[u8] {
        &self.map[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_only_reserved_costs_nothing() {
        let mut spool = Spool::new(1 << 32).unwrap();
        spool.push(b"one ");
        spool.push(b"two");
        assert_eq!(spool.len(), 7);
        let bytes = spool.freeze();
        let last = bytes.slice(4..);
        drop(bytes);
        assert_eq!(&last[..], b"two");
        assert_eq!(Spool::new(0).unwrap().freeze().len(), 0);
    }
}
