//! A source: the parts of a system, read one after the other, page by page.

use crate::item::Item;
use crate::kinds;
use crate::layout::Layout;
use crate::options::{Kind, SourceError, SourceOptions};
use crate::reader::{Counted, Reader, Scanned, StepPlace};

/// Where a source is read on: its part, and the place in that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    part: usize,
    step: StepPlace,
}

/// Some entries of a source.
#[derive(Debug)]
pub struct Page {
    /// In the order of the source, which is no order of time.
    pub items: Vec<Item>,
    /// `None`: this was the last.
    pub next: Option<Place>,
}

/// What of a system is not taken, with how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What they are, for people: `waiting`, `active` …
    pub what: &'static str,
    /// How many.
    pub count: u64,
}

/// Another system's delayed messages.
pub struct Source {
    reader: Reader,
    layout: Box<dyn Layout>,
    parts: Vec<Scanned>,
    at: String,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Source {
    /// The delayed messages of a system of `kind` in the Redis at `url`. The first page connects.
    ///
    /// # Errors
    ///
    /// [`SourceError::Option`]; [`SourceError::Link`] where the URL cannot be used.
    pub fn open(kind: Kind, url: &str, options: &SourceOptions) -> Result<Self, SourceError> {
        let layout = kinds::layout(kind, options)?;
        let (reader, at) = Reader::new(url)?;
        Ok(Self { reader, at, parts: layout.parts(), layout })
    }

    /// The entries at `place` and where the next are. What is in the source throughout comes at least once; an entry
    /// that comes twice has the same id.
    ///
    /// # Errors
    ///
    /// See [`SourceError`]; the same page may be asked for again.
    pub async fn page(&self, place: Place) -> Result<Page, SourceError> {
        let Some(part) = self.parts.get(place.part) else { return Ok(Page { items: Vec::new(), next: None }) };
        let (entries, next) = self.reader.step(part, place.step).await?;
        let items = self.layout.items(&self.reader, entries).await?;
        let after = Place { part: place.part + 1, step: StepPlace::default() };
        let next = match next {
            Some(step) => Some(Place { step, ..place }),
            None => (after.part < self.parts.len()).then_some(after),
        };
        Ok(Page { items, next })
    }

    /// Where it is, for people: its URL without a password.
    #[must_use]
    pub fn at(&self) -> &str {
        &self.at
    }

    /// How many entries there are to read.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    pub async fn count(&self) -> Result<u64, SourceError> {
        let mut count = 0;
        for part in &self.parts {
            count += match part {
                Scanned::Zset(key) => self.reader.count(Counted::Zset, key).await?,
                Scanned::Hash(key) => self.reader.count(Counted::Hash, key).await?,
                Scanned::List(key) => self.reader.count(Counted::List, key).await?,
            };
        }
        Ok(count)
    }

    /// What the system has beside that, where there is any.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    pub async fn left(&self) -> Result<Vec<Left>, SourceError> {
        let mut left = Vec::new();
        for (what, counted, key) in self.layout.left() {
            let count = match self.reader.count(counted, &key).await {
                // No part of the system, then.
                Err(SourceError::OtherType(_)) => 0,
                count => count?,
            };
            if count > 0 {
                left.push(Left { what, count });
            }
        }
        Ok(left)
    }
}
