//! Runs one version of one topic: binds its sink and starts the loops.

use std::sync::Arc;

use duetime_core::SinkBinder;
use duetime_core::hand_over::IN_PLACE_NEEDS_STREAMS;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::breaker::Breaker;
use crate::claimer::Claimer;
use crate::config::QUEUE_BATCHES;
use crate::deliverer::Deliverer;
use crate::in_place::Streamer;
use crate::permits::{Permits, Room};
use crate::settler::Settler;
use crate::work::{Ends, Work};

/// The loops of a topic, until stopped.
#[derive(Debug)]
pub(crate) struct Runner {
    ends: Ends,
}

impl Runner {
    /// Binds the sink of `work`'s topic and starts its loops.
    ///
    /// # Errors
    ///
    /// The binder's sentence.
    pub(crate) fn start(
        mut work: Work,
        permits: &Arc<Permits>,
        sinks: &dyn SinkBinder,
        tracker: &TaskTracker,
        ends: Ends,
    ) -> Result<Self, String> {
        let name = &work.record.name;
        let target = work.record.config.sink.as_ref().expect("only topics with a sink are run");
        let sink = sinks.bind(name, target)?;
        if let Some(how) = sink.in_place() {
            if !work.store.has_streams() {
                return Err(format!("sink {:?} {IN_PLACE_NEEDS_STREAMS}", target.name));
            }
            tracker.spawn(Streamer { work, how, kind: sink.kind() }.run(ends.clone()));
            return Ok(Self { ends });
        }
        // Until the sink was measured, and always for what cannot be given back: what it can take at once.
        let at_once = sink.calls_max().saturating_mul(sink.batch_max());
        work.room = Room::new(permits.clone(), &work.config, at_once);
        let breaker = Arc::new(Breaker::new(name.clone(), work.topic_meters.clone(), sink.probe_wait_max()));
        let (to_deliverer, claimed) = mpsc::channel(QUEUE_BATCHES);
        let (to_settler, owed) = mpsc::channel(QUEUE_BATCHES);
        let claimer = Claimer { work: work.clone(), breaker: breaker.clone(), to: to_deliverer };
        let deliverer = Deliverer::new(work.clone(), sink, breaker, to_settler);
        tracker.spawn(claimer.run(ends.clone()));
        tracker.spawn(deliverer.run(claimed, ends.clone()));
        tracker.spawn(Settler::new(work).run(owed, ends.clone()));
        Ok(Self { ends })
    }

    /// Claims no more; what is under way is finished or given back in the background.
    pub(crate) fn stop(&self) {
        self.ends.stop.cancel();
    }
}
