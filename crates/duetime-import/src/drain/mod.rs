//! Systems that cannot be listed: what waits there is taken out, batch by batch, and only after it is elsewhere.
//!
//! An entry of a batch is still there. It is removed when [`Drain::remove`] says so, and stays when [`Drain::keep`]
//! does, or when whoever drains ends before: then it comes again in the next pass.

mod beanstalk_client;
mod beanstalkd;
mod rabbitmq;
mod taken;

use std::sync::Arc;

use duetime_client::NewMessage;
use duetime_core::Clock;

use self::beanstalkd::Beanstalkd;
use self::rabbitmq::RabbitMq;
use self::taken::PlaceIn;
pub use self::taken::{HOLD, PUT_AT, PUT_AT_SLACK_S, Place, Removal, Sameness, Taken, Waiting};
use crate::options::{SourceError, SourceOptions, none_of};

/// Entries that one pass keeps from being read again. With more, something is wrong with all of them.
const KEPT_MAX: usize = 10_000;

/// The systems that are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainKind {
    /// A queue of RabbitMQ whose messages wait for the end of their time to live.
    RabbitMqDlx,
    /// A tube of beanstalkd.
    Beanstalkd,
}

impl DrainKind {
    /// What each is called on the command line.
    pub const WORDS: [&str; 2] = ["rabbitmq-dlx", "beanstalkd"];

    /// The one that is called so.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        let at = Self::WORDS.iter().position(|known| *known == word)?;
        Some([Self::RabbitMqDlx, Self::Beanstalkd][at])
    }
}

enum System {
    RabbitMq(Box<RabbitMq>),
    Beanstalkd(Box<Beanstalkd>),
}

/// One pass over another system, by one connection.
pub struct Drain {
    system: System,
    kept: Vec<Place>,
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

impl Drain {
    /// Connects, and takes nothing yet.
    ///
    /// # Errors
    ///
    /// [`SourceError::Option`]; [`SourceError::Peer`] where it cannot be reached, or has no such queue.
    pub async fn open(
        kind: DrainKind,
        url: &str,
        options: &SourceOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        none_of([
            ("--prefix", options.prefix.is_some()),
            ("--key", options.key.is_some()),
            ("--payloads", options.payloads.is_some()),
            ("--unit", options.unit.is_some()),
            ("--ttl", kind == DrainKind::Beanstalkd && options.ttl.is_some()),
        ])?;
        let system = match kind {
            DrainKind::RabbitMqDlx => System::RabbitMq(Box::new(RabbitMq::open(url, options, clock).await?)),
            DrainKind::Beanstalkd => System::Beanstalkd(Box::new(Beanstalkd::open(url, options, clock).await?)),
        };
        Ok(Self { system, kept: Vec::new() })
    }

    /// What there is. A pass ends after so many, however many come meanwhile.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    pub async fn waiting(&mut self) -> Result<Waiting, SourceError> {
        match &mut self.system {
            System::RabbitMq(system) => system.waiting().await,
            System::Beanstalkd(system) => system.waiting().await,
        }
    }

    /// The next entries, `most` at most; none: the pass is over.
    ///
    /// # Errors
    ///
    /// See [`SourceError`]. The connection is of no use after that: what was taken and not removed stays there.
    pub async fn batch(&mut self, most: usize) -> Result<Vec<Taken>, SourceError> {
        match &mut self.system {
            System::RabbitMq(system) => system.batch(most).await,
            System::Beanstalkd(system) => system.batch(most).await,
        }
    }

    /// Gives `message`, whose id is made of its content, the id of the next message with that content.
    pub fn number_on(&mut self, message: &mut NewMessage) {
        if let System::RabbitMq(system) = &mut self.system {
            system.number_on(message);
        }
    }

    /// Removes entries there, in their order: they are elsewhere.
    ///
    /// # Errors
    ///
    /// See [`SourceError`]: some may be removed.
    pub async fn remove(&mut self, places: Vec<Place>) -> Result<Vec<Removal>, SourceError> {
        let (mut ackers, mut jobs) = (Vec::new(), Vec::new());
        for place in places {
            match place.0 {
                PlaceIn::RabbitMq(acker) => ackers.push(*acker),
                PlaceIn::Beanstalkd(job) => jobs.push(job),
            }
        }
        match &mut self.system {
            System::RabbitMq(system) => system.remove(ackers).await,
            System::Beanstalkd(system) => system.remove(&jobs).await,
        }
    }

    /// Keeps an entry where it is, and from being read again in this pass.
    ///
    /// # Errors
    ///
    /// More are kept than one pass may.
    pub fn keep(&mut self, place: Place) -> Result<(), SourceError> {
        if self.kept.len() == KEPT_MAX {
            let what =
                format!("more than {KEPT_MAX} were refused; put right what the first ones have, and run it again");
            return Err(SourceError::Peer(what));
        }
        if let (System::Beanstalkd(system), PlaceIn::Beanstalkd(job)) = (&mut self.system, &place.0) {
            system.pass_over(job);
        }
        self.kept.push(place);
        Ok(())
    }

    /// Ends the pass: what is kept is there for others again. Says how many wait there now.
    ///
    /// # Errors
    ///
    /// See [`SourceError`]. What is kept is there for others all the same, once the connection has ended.
    pub async fn finish(mut self) -> Result<u64, SourceError> {
        for place in std::mem::take(&mut self.kept) {
            match (&mut self.system, place.0) {
                (System::RabbitMq(system), PlaceIn::RabbitMq(acker)) => system.put_back(&acker).await?,
                (System::Beanstalkd(system), PlaceIn::Beanstalkd(job)) => system.put_back(&job).await?,
                _ => {}
            }
        }
        if let System::RabbitMq(system) = &self.system {
            system.settle().await?;
        }
        let still = self.waiting().await?.count;
        if let System::RabbitMq(system) = self.system {
            system.close().await?;
        }
        Ok(still)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_names_its_own_drain() {
        assert_eq!(DrainKind::named("rabbitmq-dlx"), Some(DrainKind::RabbitMqDlx));
        assert_eq!(DrainKind::named("beanstalkd"), Some(DrainKind::Beanstalkd));
        assert_eq!(DrainKind::named("rabbitmq"), None);
    }
}
