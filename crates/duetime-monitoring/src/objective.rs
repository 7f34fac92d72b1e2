//! What users promise of lateness: so many of a hundred messages within so many seconds of their due time.

use std::time::Duration;

use duetime_core::units::{parse_duration, show_duration};
use duetime_metrics::table::{self, Kind};

/// A bound on lateness.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// How late a message may be and still count as in time: a bucket of the histogram of lateness.
    within: f64,
}

/// The bounds, in seconds, at which lateness is counted.
fn bounds() -> &'static [f64] {
    match table::LATENESS.kind {
        Kind::Histogram(bounds) => bounds,
        _ => unreachable!("lateness is a histogram"),
    }
}

impl Objective {
    /// A message is in time if it is no later than `within`.
    ///
    /// # Errors
    ///
    /// A sentence with the durations that can be chosen: lateness is counted at those only.
    pub fn new(within: Duration) -> Result<Self, String> {
        let wanted = within.as_secs_f64();
        if let Some(bound) = bounds().iter().find(|bound| (**bound - wanted).abs() < 1e-9) {
            return Ok(Self { within: *bound });
        }
        // As they are read: one of them is no whole number of milliseconds.
        let shown = |bound: Duration| match bound.subsec_micros() % 1_000 {
            0 => show_duration(bound),
            _ => format!("{bound:?}"),
        };
        let all: Vec<String> = bounds().iter().map(|bound| shown(Duration::from_secs_f64(*bound))).collect();
        Err(format!("lateness is not counted at {}; choose one of {}", shown(within), all.join(", ")))
    }

    /// The bound in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.within
    }
}

/// What is promised: of all topics, and of some by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Objectives {
    /// The share of messages that has to be in time, between 0 and 1.
    pub share: f64,
    /// For topics that are not named.
    pub all: Objective,
    /// For topics by name.
    pub topics: Vec<(String, Objective)>,
}

impl Objectives {
    /// Reads `99.9` (percent), a duration, and `topic=duration` for topics with a bound of their own.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and what is wanted.
    pub fn parse(percent: f64, within: Duration, topics: &[String]) -> Result<Self, String> {
        // At 100 % one late message would spend the whole budget for good.
        if !(50.0..100.0).contains(&percent) {
            return Err(format!("an objective of {percent} % cannot be kept or missed; give one from 50 to 99.999"));
        }
        let mut named = Vec::new();
        for text in topics {
            let (topic, within) = text
                .split_once('=')
                .ok_or_else(|| format!("{text:?} is not TOPIC=DURATION; write for example orders=500ms"))?;
            let topic = duetime_core::TopicName::new(topic).map_err(|error| error.to_string())?;
            if named.iter().any(|(other, _)| other == topic.as_str()) {
                return Err(format!("topic {topic} is given twice; give it once"));
            }
            named.push((topic.as_str().to_owned(), Objective::new(parse_duration(within)?)?));
        }
        Ok(Self { share: percent / 100.0, all: Objective::new(within)?, topics: named })
    }

    /// Each bound with the matcher of its topics; together they match every topic once.
    pub(crate) fn matchers(&self) -> Vec<(&Objective, String)> {
        // A topic's name has no character that means something in a regular expression but the dot.
        let names: Vec<String> = self.topics.iter().map(|(topic, _)| topic.replace('.', r"\\.")).collect();
        let rest = if names.is_empty() { String::new() } else { format!(r#"topic!~"{}""#, names.join("|")) };
        let mut all = vec![(&self.all, rest)];
        all.extend(self.topics.iter().map(|(topic, objective)| (objective, format!(r#"topic="{topic}""#))));
        all
    }

    /// The part of messages that may be late, `pace` times: at a pace of 1 the budget lasts as long as the objective.
    pub(crate) fn budget(&self, pace: f64) -> f64 {
        // Floating point would print 0.014400000000000013.
        (pace * (1.0 - self.share) * 1e9).round() / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_is_not_counted_is_refused_with_those_that_are() {
        let refused = Objective::new(Duration::from_secs(3)).unwrap_err();
        assert!(refused.contains("choose one of 1ms, 2ms,") && refused.contains("2s 500ms, 5s"), "{refused}");
        assert_eq!(Objective::new(Duration::from_millis(7500).div_f64(1000.0)).unwrap().seconds(), 0.0075);
    }

    #[test]
    fn topics_with_a_bound_of_their_own_are_left_out_of_the_rest() {
        let objectives = Objectives::parse(99.9, Duration::from_secs(1), &["a.b=500ms".into(), "c=5s".into()]).unwrap();
        let matchers: Vec<String> = objectives.matchers().into_iter().map(|(_, matcher)| matcher).collect();
        assert_eq!(matchers, [r#"topic!~"a\\.b|c""#, r#"topic="a.b""#, r#"topic="c""#]);
    }

    #[test]
    fn what_cannot_be_an_objective_is_refused_with_what_can() {
        let parse = |percent, topics: &[&str]| {
            let topics: Vec<String> = topics.iter().map(|&topic| topic.to_owned()).collect();
            Objectives::parse(percent, Duration::from_secs(1), &topics).unwrap_err()
        };
        assert!(parse(100.0, &[]).contains("from 50"));
        assert!(parse(99.0, &["orders"]).contains("orders=500ms"));
        assert!(parse(99.0, &["orders=1s", "orders=5s"]).contains("given twice"));
        assert!(parse(99.0, &["no/name=1s"]).contains('/'));
    }
}
