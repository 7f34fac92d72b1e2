//! Which system is read, what it needs to be found, and why it could not be.

use std::time::Duration;

use duetime_redis::LinkError;

/// The systems that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain sorted set of ids, with payloads in a hash or as the members themselves.
    Zset,
    /// BullMQ, and Bull.
    BullMq,
    /// github.com/hdt3213/delayqueue.
    Hdt3213,
    /// Sidekiq.
    Sidekiq,
    /// github.com/hibiken/asynq.
    Asynq,
    /// Celery with Redis as its broker.
    CeleryRedis,
    /// RQ.
    Rq,
}

impl Kind {
    /// What each is called on the command line.
    pub const WORDS: [&str; 7] = ["zset", "bullmq", "hdt3213", "sidekiq", "asynq", "celery-redis", "rq"];

    const ALL: [Self; 7] =
        [Self::Zset, Self::BullMq, Self::Hdt3213, Self::Sidekiq, Self::Asynq, Self::CeleryRedis, Self::Rq];

    /// The one that is called so.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::WORDS.iter().position(|known| *known == word).map(|at| Self::ALL[at])
    }
}

/// What the scores of a plain sorted set count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreUnit {
    /// Seconds since the Unix epoch, with or without a fraction.
    Seconds,
    /// Milliseconds since the Unix epoch.
    Millis,
}

/// What a source needs beside its URL; each kind says which it needs.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// The queue.
    pub queue: Option<String>,
    /// What the system's keys begin with, where that is not its usual beginning.
    pub prefix: Option<String>,
    /// The sorted set.
    pub key: Option<String>,
    /// The hash with the payloads.
    pub payloads: Option<String>,
    /// What its scores count; seconds, if absent.
    pub unit: Option<ScoreUnit>,
    /// How long messages of a queue wait that do not say it themselves.
    pub ttl: Option<Duration>,
}

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// An option lacks, or cannot be.
    #[error("{0}")]
    Option(String),
    /// Redis could not be asked.
    #[error("the source: {0}")]
    Link(#[from] LinkError),
    /// What is drained could not be reached, or said no.
    #[error("the source: {0}")]
    Peer(String),
    /// A key of the system holds something else.
    #[error("the source: {0} is of another type than this system has there; see --from, --queue and --prefix")]
    OtherType(String),
    /// Redis answered what the command does not promise.
    #[error("the source answered oddly: {0}; is it a Redis server?")]
    Odd(String),
}

/// An option that a kind cannot do without.
pub(crate) fn needed<'a>(value: &'a Option<String>, option: &str, what: &str) -> Result<&'a str, SourceError> {
    let lacking = || SourceError::Option(format!("{option} is missing; give {what}"));
    value.as_deref().filter(|text| !text.is_empty()).ok_or_else(lacking)
}

/// Refuses options that a kind does not know: those that are given.
pub(crate) fn none_of<const N: usize>(options: [(&str, bool); N]) -> Result<(), SourceError> {
    match options.into_iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(SourceError::Option(format!("{name} is not for this kind; leave it out"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_names_its_own_kind() {
        let named: Vec<_> = Kind::WORDS.iter().map(|word| Kind::named(word).unwrap()).collect();
        assert_eq!(named, Kind::ALL);
        assert_eq!(Kind::named("sqs"), None);
    }
}
