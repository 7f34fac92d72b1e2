//! Runs one version of one topic: binds its sink and starts the loops.
//!
//! Claimer, deliverer and settler are started together, and again together when one of them fails: what they
//! pass to each other belongs to one run. What they held then is due again when its claim ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use duetime_core::in_place::IN_PLACE_NEEDS_STREAMS;
use duetime_core::sink::check_delivery;
use duetime_core::{Sink, SinkBinder};
use duetime_supervisor::{Policy, Supervisor};
use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::error;

use crate::breaker::Breaker;
use crate::budget::{NodeBudget, TopicBudget};
use crate::claimer::Claimer;
use crate::config::QUEUE_BATCHES;
use crate::deliverer::Deliverer;
use crate::in_place::Streamer;
use crate::refused_streams::RefusedStreams;
use crate::settler::Settler;
use crate::sink_states::{BoundSink, BoundTo, EngineSinks};
use crate::work::{Shutdown, Work};

/// What is said of a sink whose making ready panicked.
const BIND_PANICKED: &str = "panicked when it was made ready; the log's line of the panic has more, report it";

/// The loops of a topic, until stopped.
#[derive(Debug)]
pub(crate) struct Runner {
    shutdown: Shutdown,
}

impl Runner {
    /// Binds the sink of `work`'s topic and starts its loops.
    ///
    /// # Errors
    ///
    /// The binder's sentence.
    pub(crate) fn start(
        work: Work,
        budget: &Arc<NodeBudget>,
        sinks: &dyn SinkBinder,
        states: &Arc<EngineSinks>,
        supervisor: &Supervisor,
        shutdown: Shutdown,
    ) -> Result<Self, String> {
        let target = work.record.config.sink.clone().expect("only topics with a sink are run");
        // One topic's sink ends no loop of the node.
        let bound = catch_unwind(AssertUnwindSafe(|| sinks.bind(&work.record.name, &target)));
        let panicked = || format!("sink {:?} {BIND_PANICKED}", target.name);
        let sink = bound.map_err(|_| panicked())?.map_err(|error| error.to_string())?;
        check_delivery(work.record.config.delivery, &*sink)?;
        let run = shutdown.clone();
        if let Some(how) = sink.in_place() {
            if !work.store.has_streams() {
                return Err(format!("sink {:?} {IN_PLACE_NEEDS_STREAMS}", target.name));
            }
            let meters = work.meters.sink(&target.name, sink.kind());
            let refused = Arc::new(RefusedStreams::new(work.record.name.clone()));
            let bound = Ok((sink.kind(), BoundTo::Streams(refused.clone())));
            states.set(&work.record.name, Some(BoundSink { name: target.name, bound }));
            supervisor.start("in-place", Policy::Restart, &shutdown.stop, move || {
                Streamer { work: work.clone(), how, meters: meters.clone(), refused: refused.clone() }.run(run.clone())
            });
            return Ok(Self { shutdown });
        }
        let (budget, states) = (budget.clone(), states.clone());
        supervisor.start("delivery", Policy::Restart, &shutdown.stop, move || {
            let (name, meters, clock) = (work.record.name.clone(), work.topic_meters.clone(), work.clock.clone());
            let (named, outages) = ((name.clone(), target.name.clone()), states.outages.clone());
            // A new one each time: a failed run may have left the old one in the middle of a probe.
            let breaker = Arc::new(Breaker::new(named, outages, meters, clock, sink.max_probe_wait()));
            let bound = Ok((sink.kind(), BoundTo::Target(breaker.clone())));
            states.set(&name, Some(BoundSink { name: target.name.clone(), bound }));
            // Until the sink was measured, and always for what cannot be given back: what it can take at once.
            let at_once = sink.calls_max().saturating_mul(sink.batch_max());
            let budget = TopicBudget::new(budget.clone(), &work.config, at_once);
            deliver(Work { budget, ..work.clone() }, sink.clone(), breaker, run.child())
        });
        Ok(Self { shutdown })
    }

    /// Claims no more; what is under way is finished or given back in the background.
    pub(crate) fn stop(&self) {
        self.shutdown.stop.cancel();
    }
}

/// Claims, delivers and settles until `shutdown`. Returns before that when one of the loops has failed, and the
/// others have ended.
async fn deliver(work: Work, sink: Arc<dyn Sink>, breaker: Arc<Breaker>, shutdown: Shutdown) {
    let name = work.record.name.clone();
    let (to_deliverer, claimed) = mpsc::channel(QUEUE_BATCHES);
    let (to_settler, pending) = mpsc::channel(QUEUE_BATCHES);
    let claimer = Claimer { work: work.clone(), breaker: breaker.clone(), to: to_deliverer };
    let deliverer = Deliverer::new(work.clone(), sink, breaker, to_settler);
    let mut loops = JoinSet::new();
    loops.spawn(claimer.run(shutdown.clone()).map(|()| "claimer"));
    loops.spawn(deliverer.run(claimed, shutdown.clone()).map(|()| "deliverer"));
    loops.spawn(Settler::new(work).run(pending, shutdown.clone()).map(|()| "settler"));
    while let Some(ended) = loops.join_next().await {
        if shutdown.stop.is_cancelled() {
            continue;
        }
        match ended {
            Ok(ended) => error!(topic = %name, ended, "a loop of the topic ended by itself"),
            Err(_) => error!(topic = %name, "a loop of the topic panicked; the line of the panic has more"),
        }
        shutdown.stop.cancel();
    }
}
