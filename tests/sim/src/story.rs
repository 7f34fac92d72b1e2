//! What happened in a world, as lines that a person can follow: faults, what clients asked and heard, and which scripts
//! the masters ran for the messages that it is about.

use std::collections::BTreeSet;

use duetime_testkit::history::{Event, What};

use crate::trace::{About, Line};

/// Lines that a story has at most: the last ones.
const LINES_MAX: usize = 400;

/// Ids of the history that a text names.
fn ids_in<'a>(events: &'a [Event], text: &str) -> BTreeSet<&'a str> {
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    events.iter().map(|event| event.id.as_str()).filter(|id| !id.is_empty() && words.contains(id)).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '-';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

/// The lines about what failed; `everything`: all lines.
pub fn told(events: &[Event], lines: &[Line], why: &str, everything: bool) -> String {
    let ids = ids_in(events, why);
    let began_ms = events.first().map_or(0, |event| event.at_ms);
    let is_fault = |event: &&Event| matches!(event.what, What::FaultBegins(_) | What::FaultEnds(_));
    let wanted = |event: &&Event| everything || is_fault(event) || ids.contains(event.id.as_str());
    let seen = events.iter().filter(wanted).map(|event| {
        let about = if event.id.is_empty() { String::new() } else { format!("{}/{} ", event.topic, event.id) };
        (event.at_ms, format!("{about}{:?}", event.what))
    });
    let mut all: Vec<(i64, String)> = seen.collect();
    // Clients begin when the world is made, a little after its trace.
    let offset_ms = lines.first().map_or(0, |_| crate::world::START.as_millis());
    let is_about = |line: &&Line| match line.about {
        About::Script => ids.iter().any(|id| has_word(&line.text, id)),
        About::Bytes | About::Network => false,
    };
    let ran = lines.iter().filter(|line| everything || is_about(line));
    all.extend(ran.map(|line| {
        let at_ms = offset_ms + i64::try_from(line.at_us / 1_000).unwrap_or(i64::MAX);
        (at_ms, line.text.clone())
    }));
    all.sort_by_key(|(at_ms, _)| *at_ms);
    let skipped = if everything { 0 } else { all.len().saturating_sub(LINES_MAX) };
    let mut text = format!("{why}\n");
    if skipped > 0 {
        text += &format!("({skipped} earlier lines are left out)\n");
    }
    for (at_ms, line) in &all[skipped..] {
        let since = at_ms - began_ms;
        text += &format!("{:>6}.{:03} {line}\n", since.div_euclid(1_000), since.rem_euclid(1_000));
    }
    text
}
