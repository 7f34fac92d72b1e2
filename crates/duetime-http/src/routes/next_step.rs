//! What happens next to a message, in words: the last line of its explanation.

use duetime_core::units::show_duration;
use duetime_core::{MessageState, StoredMessage, Timestamp, TopicRecord};

use crate::routes::pause_view::PauseView;
use crate::routes::sinks::SinkIssueView;
use crate::server::state::HttpParts;

/// What a message that is due, or was deferred, waits for: its topic's sink, or a message of its shard that is in
/// flight.
pub(crate) async fn waits_for(
    app: &HttpParts,
    record: &TopicRecord,
    message: &StoredMessage,
    shard: u32,
    issue: Option<&SinkIssueView>,
) -> Option<String> {
    let sink_waits = issue.zip(record.config.sink.as_ref()).map(|(issue, sink)| issue.in_words(&sink.name));
    let is_due = message.state == MessageState::Scheduled && message.visible_at <= app.clock.now();
    let max = record.config.max_in_flight.filter(|_| is_due && sink_waits.is_none());
    let Some(max) = max else { return sink_waits };
    let most = record.routing.in_flight_bound(shard).most(u32::MAX)?;
    let counts = app.router.counter.count(&record.name).await.ok()?;
    let in_flight = counts.shards.get(shard as usize).copied().flatten()?.in_flight;
    (in_flight >= u64::from(most)).then(|| {
        format!(
            "of its shard {in_flight} are in flight, and {most} may be: its part of max_in_flight = {max}. It is claimed \
             after one of them was settled, or its claim ran out."
        )
    })
}

/// What happens next to a message; `waits`: what it waits for where it is due or deferred.
pub(crate) fn in_words(
    message: &StoredMessage,
    record: &TopicRecord,
    waits: Option<&str>,
    pause: Option<&PauseView<'_>>,
    now: Timestamp,
) -> String {
    let target = match &record.config.sink {
        Some(sink) => format!("handed to the sink {:?}", sink.name),
        None => "given to the next consumer that claims".to_owned(),
    };
    let (attempts, max) = (message.attempts, record.config.retry.attempts_of(&message.headers));
    let visible_at = message.visible_at;
    let away = show_duration(visible_at.since(now));
    let is_deferred = message.is_deferred(now);
    match message.state {
        MessageState::Dead => {
            let reason = message.death.as_ref().map_or("of an unknown reason", |death| death.reason.as_str());
            format!("Dead since {visible_at}, because: {reason}. Stays until it is redriven or purged.")
        }
        MessageState::InFlight if visible_at > now => {
            let then = if attempts < max { "is tried again" } else { "becomes a dead letter: it is the last attempt" };
            format!(
                "Claimed for attempt {attempts} of {max}. Unless it is settled before {visible_at} (in {away}), it \
                 {then}."
            )
        }
        MessageState::InFlight => format!(
            "Its claim for attempt {attempts} of {max} ran out at {visible_at} without a verdict; the next look at \
             its shard decides whether it is tried again."
        ),
        MessageState::Scheduled if record.config.paused => {
            let why = pause
                .and_then(|pause| pause.reason.as_deref())
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            let at = if is_deferred { message.due_at } else { visible_at };
            format!(
                "{} {at}, and its topic is paused{why}: nothing is claimed until it is resumed, by `duetime \
                 resume {}`.",
                if at > now { "Due at" } else { "Due since" },
                record.name
            )
        }
        MessageState::Scheduled if visible_at > now && attempts > 0 => {
            format!("Waits for attempt {} of {max}, at {visible_at} (in {away}); then it is {target}.", attempts + 1)
        }
        MessageState::Scheduled if is_deferred => {
            let why = waits.map(|why| format!(" The reason: {why}")).unwrap_or_default();
            let since = message.due_at;
            format!(
                "Due since {since}, and deferred to {visible_at} (in {away}), which cost no attempt; then it is {target}.{why}"
            )
        }
        MessageState::Scheduled if visible_at > now => {
            format!("Due at {visible_at} (in {away}); then it is {target}.")
        }
        MessageState::Scheduled => {
            let waits = waits.map(|why| format!(" It waits for that: {why}")).unwrap_or_default();
            format!("Due since {visible_at}; it is {target} as soon as its turn comes.{waits}")
        }
    }
}
