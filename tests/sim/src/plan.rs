//! Which world is run: its seed, and what of it is left out so that a failure is easier to follow.

use std::fmt;
use std::str::FromStr;

/// A part of a world that it can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The network fails.
    Network,
    /// Nodes stop.
    Stops,
    /// Clocks jump.
    Clocks,
    /// Masters fail over.
    Failovers,
    /// The records of the topics are lost.
    Empties,
    /// A topic is deleted and created again.
    Lives,
    /// Topics are deleted beside enqueues.
    Deletions,
    /// The visibility timeout is lowered.
    Lowers,
    /// Movers stop after a step.
    Dozes,
    /// The shard count changes, and movers come and go.
    Changes,
    /// Several masters.
    Masters,
    /// More than two nodes.
    Nodes,
    /// More than one producer.
    Producers,
    /// More than one consumer.
    Consumers,
    /// Many ids of each producer.
    Ids,
}

impl Part {
    /// All of them: first what explains the most.
    pub const ALL: [Self; 15] = [
        Self::Failovers,
        Self::Clocks,
        Self::Network,
        Self::Stops,
        Self::Empties,
        Self::Lives,
        Self::Deletions,
        Self::Lowers,
        Self::Dozes,
        Self::Changes,
        Self::Masters,
        Self::Nodes,
        Self::Producers,
        Self::Consumers,
        Self::Ids,
    ];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Which world is run. Written as `SEED`, `SEED-part-part` or `SEED.SALT-part-part`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Says what the world is, and all chance in it.
    pub seed: u64,
    /// Another chance in the same world.
    pub salt: u64,
    /// What is left out of the world.
    pub without: Vec<Part>,
}

impl Plan {
    /// The whole world of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Whether the world has this part.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        if self.salt > 0 {
            write!(f, ".{}", self.salt)?;
        }
        self.without.iter().try_for_each(|part| write!(f, "-{}", part.name()))
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split('-');
        let numbers = words.next().unwrap_or_default();
        let (seed, salt) = numbers.split_once('.').unwrap_or((numbers, "0"));
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
        let part = |word: &str| {
            let found = Part::ALL.into_iter().find(|part| part.name() == word);
            found.ok_or_else(|| format!("{word:?} is no part of a world"))
        };
        Ok(Self { seed: number(seed)?, salt: number(salt)?, without: words.map(part).collect::<Result<_, _>>()? })
    }
}

/// Worlds of other chance that are tried before a part is taken to be needed.
const SALTS: u64 = 6;

/// Leaves out of a world that fails whatever it fails without.
#[must_use]
pub fn shrunk(plan: &Plan, fails: impl Fn(&Plan) -> bool) -> Plan {
    let mut least = plan.clone();
    for part in Part::ALL.into_iter().filter(|part| plan.has(*part)) {
        let mut without = least.without.clone();
        without.push(part);
        let salts = std::iter::once(least.salt).chain((0..SALTS).filter(|salt| *salt != least.salt));
        let tried = salts.map(|salt| Plan { seed: plan.seed, salt, without: without.clone() });
        if let Some(smaller) = tried.into_iter().find(|smaller| fails(smaller)) {
            least = smaller;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        for text in ["188", "188.3", "188-network-lives", "7.2-ids"] {
            assert_eq!(text.parse::<Plan>().unwrap().to_string(), text);
        }
        assert!("188-weather".parse::<Plan>().is_err() && "x".parse::<Plan>().is_err());
    }

    #[test]
    fn a_world_keeps_the_parts_that_it_fails_by() {
        let needed = [Part::Network, Part::Lives];
        let least = shrunk(&Plan::of(5), |plan| needed.iter().all(|part| plan.has(*part)));
        assert_eq!(Part::ALL.into_iter().filter(|part| least.has(*part)).collect::<Vec<_>>(), needed);
    }
}
