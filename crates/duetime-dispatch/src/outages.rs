//! When this node took sinks to be down: what the breakers say of it, for answers.
//!
//! It outlives the breakers, of which each run of a topic has a new one. Upstream: `breaker`. Downstream: `sink_states`.

use std::collections::VecDeque;

use duetime_core::{OutageEnd, SinkOutage, Timestamp, TopicName};
use parking_lot::Mutex;

/// Outages that are kept, of all topics.
const OUTAGES_KEPT: usize = 1024;
/// Of these, of one topic: one whose sink comes and goes must not hide the others.
const OUTAGES_OF_A_TOPIC: usize = 32;
/// Longest reason that is kept, in bytes.
const REASON_KEPT: usize = 512;

/// The number of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutageId(u64);

#[derive(Debug, Default)]
struct KeptOutages {
    next: u64,
    /// The oldest first.
    all: VecDeque<(u64, SinkOutage)>,
}

/// When this node took sinks to be down: what the breakers say of it, for answers.
#[derive(Debug, Default)]
pub(crate) struct Outages(Mutex<KeptOutages>);

fn short(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON_KEPT)].to_owned()
}

impl Outages {
    /// `sink` of `topic` is taken to be down.
    pub(crate) fn began(&self, topic: &TopicName, sink: &str, since: Timestamp, reason: &str) -> OutageId {
        let mut kept = self.0.lock();
        if kept.all.iter().filter(|(_, one)| one.topic == *topic).count() >= OUTAGES_OF_A_TOPIC
            && let Some(oldest) = kept.all.iter().position(|(_, one)| one.topic == *topic)
        {
            kept.all.remove(oldest);
        } else if kept.all.len() >= OUTAGES_KEPT {
            kept.all.pop_front();
        }
        let id = kept.next;
        kept.next += 1;
        let (topic, sink, reason) = (topic.clone(), sink.to_owned(), short(reason));
        kept.all.push_back((id, SinkOutage { topic, sink, since, ended: None, reason, last_reason: None, probes: 0 }));
        OutageId(id)
    }

    fn change(&self, OutageId(id): OutageId, change: impl FnOnce(&mut SinkOutage)) {
        let mut kept = self.0.lock();
        if let Some((_, outage)) = kept.all.iter_mut().rev().find(|(known, _)| *known == id) {
            change(outage);
        }
    }

    /// It was tried and is down still.
    pub(crate) fn tried(&self, id: OutageId, reason: &str) {
        let reason = short(reason);
        self.change(id, |outage| {
            outage.probes += 1;
            outage.last_reason = (reason != outage.reason).then_some(reason);
        });
    }

    /// It is over.
    pub(crate) fn ended(&self, id: OutageId, at: Timestamp, how: OutageEnd) {
        self.change(id, |outage| outage.ended = Some((at, how)));
    }

    /// The latest first.
    pub(crate) fn latest(&self) -> Vec<SinkOutage> {
        self.0.lock().all.iter().rev().map(|(_, outage)| outage.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_a_topic_whose_sink_comes_and_goes_hides_no_other() {
        let (outages, quiet) = (Outages::default(), TopicName::new("quiet").unwrap());
        let first = outages.began(&quiet, "out", Timestamp::from_millis(0), "503");
        let flaps = TopicName::new("flaps").unwrap();
        for at in 1..=2000 {
            let id = outages.began(&flaps, "out", Timestamp::from_millis(at), &"ä".repeat(400));
            outages.ended(id, Timestamp::from_millis(at), OutageEnd::Accepted);
        }
        let all = outages.latest();
        assert_eq!((all.len(), all[0].since.as_millis()), (OUTAGES_OF_A_TOPIC + 1, 2000));
        assert_eq!(all[0].reason, "ä".repeat(REASON_KEPT / 2));
        outages.tried(first, "connection refused");
        assert_eq!((outages.latest().pop().unwrap().probes, outages.latest().pop().unwrap().ended), (1, None));
        for topic in 0..2000 {
            let topic = TopicName::new(&format!("t{topic}")).unwrap();
            outages.began(&topic, "out", Timestamp::from_millis(3000), "503");
        }
        assert_eq!(outages.latest().len(), OUTAGES_KEPT);
        // What is not kept any more may still end.
        outages.ended(first, Timestamp::from_millis(4000), OutageEnd::Dropped);
    }
}
