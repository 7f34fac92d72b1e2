//! Reads a recorded history: one JSON object a line.
//!
//! Events as [`super::Recorder::lines`] writes them; what is there at the end as `{"left": {…}}`, one
//! line a message; a survey's counts as `{"counts": [scheduled, in_flight, dead]}`.

use serde::Deserialize;

use super::event::Event;
use super::story::{FinalState, Left};

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Left { left: Left },
    Counts { counts: (u64, u64, u64) },
    Event(Event),
}

/// Reads all lines; empty ones are passed over.
///
/// # Errors
///
/// The number of the first line that is none of these, from 1.
pub fn read(text: &str) -> Result<(Vec<Event>, FinalState), String> {
    let (mut events, mut state) = (Vec::new(), FinalState::default());
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(Line::Event(event)) => events.push(event),
            Ok(Line::Left { left }) => state.left.push(left),
            Ok(Line::Counts { counts }) => state.counts = Some(counts),
            Err(_) => return Err(format!("line {}: neither an event nor what is left", n + 1)),
        }
    }
    Ok((events, state))
}

#[cfg(test)]
mod tests {
    use super::super::{Rules, check};
    use super::*;

    const GOOD: &str = r#"
{"at_ms":1000,"topic":"t","id":"a","what":"invoked","change":"enqueue","due_at_ms":2000,"payload":7}
{"at_ms":1001,"topic":"t","id":"a","what":"answered","outcome":"scheduled"}
{"at_ms":2003,"topic":"t","id":"a","what":"handed","attempt":1,"payload":7,"until_ms":null}
{"at_ms":2003,"topic":"t","id":"a","what":"settled","attempt":1,"outcome":"accepted"}
{"at_ms":1002,"topic":"t","id":"b","what":"invoked","change":"enqueue","due_at_ms":9000,"payload":8}
{"at_ms":1003,"topic":"t","id":"b","what":"answered","outcome":"scheduled"}
{"left":{"topic":"t","id":"b","state":"scheduled","payload":8,"reason":null}}
{"counts":[1,0,0]}
"#;
    const RULES: Rules = Rules { attempts_max: 5, aftermath_ms: 1000 };

    #[test]
    fn a_recorded_history_is_read_and_judged() {
        let (events, state) = read(GOOD).unwrap();
        assert_eq!((events.len(), state.left.len(), state.counts), (6, 1, Some((1, 0, 0))));
        check(&events, &state, RULES).assert_good();
        let without = GOOD.lines().filter(|line| !line.contains("left")).collect::<Vec<_>>().join("\n");
        let (events, state) = read(&without).unwrap();
        assert!(!check(&events, &state, RULES).is_good(), "a message that is nowhere is lost");
    }

    #[test]
    fn a_line_that_is_nothing_known_is_named() {
        assert_eq!(read("\n{}\n").unwrap_err(), "line 2: neither an event nor what is left");
    }
}
