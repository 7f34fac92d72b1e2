//! Runs one version of one topic: binds its sink and starts the loops.

use std::sync::Arc;

use duetime_core::SinkBinder;
use duetime_core::hand_over::IN_PLACE_NEEDS_REDIS;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::breaker::Breaker;
use crate::claimer::Claimer;
use crate::config::QUEUE_BATCHES;
use crate::deliverer::Deliverer;
use crate::in_place::Streamer;
use crate::permits::{Permits, Room};
use crate::settler::Settler;
use crate::sink_states::BoundSink;
use crate::work::{Ends, Work};

/// The loops of a topic, until stopped.
#[derive(Debug)]
pub(crate) struct Runner {
    ends: Ends,
    /// The sink it hands over to.
    pub(crate) sink: BoundSink,
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
        let name = work.record.name.clone();
        let target = work.record.config.sink.clone().expect("only topics with a sink are run");
        let sink = sinks.bind(&name, &target)?;
        if let Some(how) = sink.in_place() {
            if !work.store.has_streams() {
                return Err(format!("sink {:?} {IN_PLACE_NEEDS_REDIS}", target.name));
            }
            let meters = work.meters.sink(&target.name, sink.kind());
            tracker.spawn(Streamer { work, how, meters }.run(ends.clone()));
            let sink = BoundSink { name: target.name, bound: Ok((sink.kind(), None)) };
            return Ok(Self { ends, sink });
        }
        // Until the sink was measured, and always for what cannot be given back: what it can take at once.
        let at_once = sink.calls_max().saturating_mul(sink.batch_max());
        work.room = Room::new(permits.clone(), &work.config, at_once);
        let (meters, clock) = (work.topic_meters.clone(), work.clock.clone());
        let breaker = Arc::new(Breaker::new(name, meters, clock, sink.probe_wait_max()));
        let bound = BoundSink { name: target.name, bound: Ok((sink.kind(), Some(breaker.clone()))) };
        let (to_deliverer, claimed) = mpsc::channel(QUEUE_BATCHES);
        let (to_settler, owed) = mpsc::channel(QUEUE_BATCHES);
        let claimer = Claimer { work: work.clone(), breaker: breaker.clone(), to: to_deliverer };
        let deliverer = Deliverer::new(work.clone(), sink, breaker, to_settler);
        tracker.spawn(claimer.run(ends.clone()));
        tracker.spawn(deliverer.run(claimed, ends.clone()));
        tracker.spawn(Settler::new(work).run(owed, ends.clone()));
        Ok(Self { ends, sink: bound })
    }

    /// Claims no more; what is under way is finished or given back in the background.
    pub(crate) fn stop(&self) {
        self.ends.stop.cancel();
    }
}
