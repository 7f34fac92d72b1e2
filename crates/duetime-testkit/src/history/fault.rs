//! What a fault can explain: only what was in flight while it lasted, and what follows from that.

use super::event::{Event, FaultKind, What};

/// What the checks must know of the topics.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// `retry.max_attempts`.
    pub attempts_max: u8,
    /// How long after its end a fault may still explain something: the visibility timeout, the
    /// longest backoff and the node's start.
    pub aftermath_ms: i64,
}

/// A settlement is in the store, and a delivery is noted, within this time where nothing fails.
const SETTLED_WITHIN_MS: i64 = 2_000;
/// With `appendfsync everysec` Redis may lose what it answered in the last two seconds before a kill.
const UNSAVED_MS: i64 = 2_000;

/// A fault, and how far what follows from it reaches.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub kind: FaultKind,
    pub from_ms: i64,
    /// When it was over.
    pub to_ms: i64,
    /// When the last claim that it met has run out: [`Rules::aftermath_ms`] after its end.
    pub until_ms: i64,
    /// The same of the faults that follow one upon the other: each of them may keep a message that was
    /// in flight at this one from being delivered again.
    pub again_until_ms: i64,
}

impl Fault {
    /// Whether a delivery that was made and noted at these moments was in flight at the fault.
    pub fn met(&self, handed_ms: i64, noted_ms: i64) -> bool {
        let last_ms = match self.kind {
            // A dead node hands nothing over; what comes later is another's.
            FaultKind::NodeKilled => self.from_ms,
            _ => self.to_ms,
        };
        handed_ms <= last_ms.saturating_add(SETTLED_WITHIN_MS) && self.from_ms - SETTLED_WITHIN_MS <= noted_ms
    }

    /// Whether it explains that a message delivered and noted at `first` was delivered again at `again_ms`.
    pub fn explains_again(&self, first: (i64, i64), again_ms: i64) -> bool {
        let (handed_ms, noted_ms) = first;
        let follows = match self.kind {
            FaultKind::NodeKilled | FaultKind::NodeStalled => false,
            // Connections are made anew after it, and answers are lost until then.
            _ => (self.from_ms..=self.until_ms).contains(&handed_ms),
        };
        (self.met(handed_ms, noted_ms) || follows) && (self.from_ms..=self.again_until_ms).contains(&again_ms)
    }

    /// Whether what the store was asked and answered at these moments may be lost by it. An answer that was on its way
    /// when the store was killed is written down later.
    pub fn may_undo(&self, asked_ms: i64, answered_ms: i64) -> bool {
        let last_ms = if asked_ms <= self.from_ms { self.to_ms } else { self.from_ms };
        self.kind == FaultKind::StoreKilledUnsaved && (self.from_ms - UNSAVED_MS..=last_ms).contains(&answered_ms)
    }
}

/// All faults of a history; one without an end lasts for ever. Of two of a kind at once, that which began
/// first ends first.
pub(super) fn faults_of(history: &[Event], rules: Rules) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    for event in history {
        match &event.what {
            What::FaultBegins(fault) => {
                let (from_ms, to_ms) = (event.at_ms, i64::MAX);
                let until_ms = i64::MAX;
                faults.push(Fault { kind: fault.kind, from_ms, to_ms, until_ms, again_until_ms: until_ms });
            }
            What::FaultEnds(fault) => {
                let open = faults.iter_mut().find(|open| open.kind == fault.kind && open.to_ms == i64::MAX);
                if let Some(open) = open {
                    (open.to_ms, open.until_ms) = (event.at_ms, event.at_ms + rules.aftermath_ms);
                }
            }
            _ => {}
        }
    }
    let spans: Vec<(i64, i64)> = faults.iter().map(|fault| (fault.from_ms, fault.until_ms)).collect();
    for fault in &mut faults {
        let mut reach_ms = fault.until_ms;
        while let Some((_, further)) = spans.iter().find(|(from, until)| *from <= reach_ms && reach_ms < *until) {
            reach_ms = *further;
        }
        fault.again_until_ms = reach_ms;
    }
    faults
}
