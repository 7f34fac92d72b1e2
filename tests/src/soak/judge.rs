//! The end of a round: everything is delivered, and its history is judged and forgotten.
//!
//! What was not answered may be carried out later than its round: such messages stay in the next one's
//! history.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_testkit::history::{Event, FaultFields, FaultKind, FinalState, Left, Rules, Verdict, What, check, digest};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::world::{ATTEMPTS, TOPICS, VISIBILITY, World};

/// For everything to be delivered. Rounds end with all servers up.
const DRAINED_WITHIN: Duration = Duration::from_secs(150);
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Longer than any fault lasts.
const FAULT_MAX_MS: i64 = 120_000;
/// Of so many messages of a round, one at least is delivered.
const DELIVERED: usize = 4;

/// The end of a round: everything is delivered, and its history is judged and forgotten.
#[derive(Default)]
pub struct Judge {
    carried: Vec<Event>,
}

impl Judge {
    /// Judges a round in which so many messages were sent.
    ///
    /// # Errors
    ///
    /// What is broken, or not delivered in its time.
    pub async fn round(&mut self, world: &World, sent: usize) -> Result<Verdict, String> {
        let state = drained(world).await?;
        let shared = &world.shared;
        let mut events = std::mem::take(&mut self.carried);
        let carried: BTreeSet<String> = ids(&events);
        events.extend(shared.recorder.take());
        for (from_ms, to_ms) in std::mem::take(&mut *shared.stalls.lock()) {
            let fault = FaultFields { kind: FaultKind::NetworkFailed };
            let at = |at_ms, what| Event { at_ms, topic: String::new(), id: String::new(), what };
            events.push(at(from_ms, What::FaultBegins(fault)));
            events.push(at(to_ms, What::FaultEnds(fault)));
        }
        events.sort_by_key(|event| event.at_ms);
        let aftermath_ms = i64::try_from((VISIBILITY * 3).as_millis()).expect("small");
        let verdict = check(&events, &state, Rules { attempts_max: ATTEMPTS, aftermath_ms });
        if !verdict.is_good() {
            return Err(format!("{verdict}{}\n{}", kept(&events, &state), world.outputs()));
        }
        if verdict.accepted * DELIVERED < sent {
            return Err(format!("of {sent} messages only {} were delivered\n{}", verdict.accepted, world.outputs()));
        }
        let unsure: BTreeSet<String> =
            events.iter().filter(|event| event.what == What::Unanswered).map(|event| event.id.clone()).collect();
        let is_fault = |event: &Event| matches!(event.what, What::FaultBegins(_) | What::FaultEnds(_));
        events.retain(|event| is_fault(event) || unsure.contains(&event.id) && !carried.contains(&event.id));
        // Faults of the round before the last explain nothing any more.
        let began_ms = events.iter().filter(|event| !is_fault(event)).map(|event| event.at_ms).min();
        let began_ms = began_ms.unwrap_or(i64::MAX).saturating_sub(FAULT_MAX_MS);
        events.retain(|event| event.at_ms >= began_ms);
        self.carried = events;
        Ok(verdict)
    }
}

fn ids(events: &[Event]) -> BTreeSet<String> {
    events.iter().filter(|event| !event.id.is_empty()).map(|event| event.id.clone()).collect()
}

/// Waits until nothing is scheduled or in flight; what is dead, with the counts.
async fn drained(world: &World) -> Result<FinalState, String> {
    let end = Instant::now() + DRAINED_WITHIN;
    let mut state = FinalState { left: Vec::new(), counts: Some((0, 0, 0)) };
    for topic in TOPICS {
        loop {
            let told = world.shared.call(Method::GET, topic, "", &json!({})).await.map(|told| told.body);
            let count = |name: &str| told.as_ref().and_then(|told| told[name].as_u64());
            let silent = count("unreachable_shards").unwrap_or(0);
            if let (Some(0), Some(0), Some(dead), 0) = (count("scheduled"), count("in_flight"), count("dead"), silent) {
                state.counts = state.counts.map(|counts| (0, 0, counts.2 + dead));
                break;
            }
            if Instant::now() > end {
                let told = told.unwrap_or_default();
                return Err(format!("{topic}: not all is delivered: {told}\n{}", world.outputs()));
            }
            let_pass(LOOK_EVERY, Because::AskedAgain).await;
        }
        let Some(page) = world.shared.call(Method::GET, topic, "/dead?limit=256", &json!({})).await else { continue };
        for message in page.body["messages"].as_array().into_iter().flatten() {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            state.left.push(Left {
                topic: topic.to_owned(),
                id: text(&message["id"]),
                state: "dead".to_owned(),
                payload: digest(text(&message["payload"]).as_bytes()),
                reason: Some(text(&message["reason"])),
            });
        }
    }
    while world.shared.settling.load(Ordering::SeqCst) > 0 && Instant::now() < end {
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
    Ok(state)
}

/// Writes the history down, for `duetime-check`; answers where.
fn kept(events: &[Event], state: &FinalState) -> String {
    let line = |event: &Event| serde_json::to_string(event).expect("events are plain") + "\n";
    let left = |left: &Left| json!({ "left": left }).to_string() + "\n";
    let text: String = events.iter().map(line).chain(state.left.iter().map(left)).collect();
    let path = std::env::temp_dir().join(format!("duetime-soak-{}.jsonl", std::process::id()));
    match std::fs::write(&path, text) {
        Ok(()) => format!("the history is in {}", path.display()),
        Err(error) => format!("the history cannot be written to {}: {error}", path.display()),
    }
}
