//! What a shard is to an id while shard counts change, and what a call finds there.

use crate::memory::Outcome;
use crate::store_error::StoreError;

/// What a shard is to an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The id's home before the change, or any shard where it was claimed. It may still live here and must be looked
    /// for here first; it is never made here.
    Source,
    /// The id's home. Whatever is answered here is final.
    Home,
}

impl Role {
    /// Asks a shard in this role. What it answers as a home is final; as a source it says of each id whether it is there.
    ///
    /// # Errors
    ///
    /// Those of the shard.
    pub async fn ask<A, H, S, Home, Source>(
        self,
        home: impl FnOnce() -> Home,
        source: impl FnOnce() -> Source,
    ) -> Result<A, StoreError>
    where
        A: OfHome<H> + From<S>,
        Home: Future<Output = Result<H, StoreError>>,
        Source: Future<Output = Result<S, StoreError>>,
    {
        match self {
            Self::Home => Ok(A::of_home(home().await?)),
            Self::Source => Ok(A::from(source().await?)),
        }
    }

    /// The name of an operation, which is another one where it is done at a source.
    #[must_use]
    pub fn op(self, home: &'static str, source: &'static str) -> &'static str {
        match self {
            Self::Home => home,
            Self::Source => source,
        }
    }
}

/// Answers that both roles give, made of those that only a home gives.
pub trait OfHome<H> {
    /// Each of them is final.
    fn of_home(answers: H) -> Self;
}

impl<T> OfHome<Vec<T>> for Vec<Lookup<T>> {
    fn of_home(answers: Vec<T>) -> Self {
        Lookup::all(answers)
    }
}

impl<T> OfHome<Self> for Vec<Lookup<T>> {
    fn of_home(answers: Self) -> Self {
        answers
    }
}

/// What a call on an id found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It lives here (dead letters too), or here is its home: this became of it, and that is final.
    Found(T),
    /// It is not here and never will be again; what became of it here, where that is remembered. Nothing was done; go
    /// on to its home.
    Absent(Option<Outcome>),
    /// It is in the outbox. Nothing was done; finish the batch (or let the mover) and ask again.
    Frozen,
}

impl<T> Lookup<T> {
    /// Maps the value of `Found`.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Self::Found(found) => Lookup::Found(with(found)),
            Self::Absent(outcome) => Lookup::Absent(outcome),
            Self::Frozen => Lookup::Frozen,
        }
    }

    /// Each answer of a home.
    pub fn all(answers: Vec<T>) -> Vec<Self> {
        answers.into_iter().map(Self::Found).collect()
    }

    /// The answers of a home, which are final.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`]: the store answered as a source does.
    pub fn finals(answers: Vec<Self>) -> Result<Vec<T>, StoreError> {
        let each = answers.into_iter().map(|answer| match answer {
            Self::Found(found) => Ok(found),
            Self::Absent(_) | Self::Frozen => Err(StoreError::Damaged("a home answered as a source".to_owned())),
        });
        each.collect()
    }
}
