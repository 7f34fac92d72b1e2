//! No warning is repeated without a bound: what one place of the code says at `warn` or `error` is written so many
//! times a minute, and the rest is counted and said in one line.
//!
//! A fault that many messages, topics or connections meet would else fill the disk with the same sentence just when
//! somebody has to read the log.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, warn};
use tracing_subscriber::layer::{Context, Filter};

/// So many lines of one place in the code are written in [`WINDOW`].
const LINES_MAX: u64 = 60;
/// See [`LINES_MAX`].
const WINDOW: Duration = Duration::from_secs(60);

/// What one place said in its present window.
#[derive(Debug)]
struct CallSite {
    since: Instant,
    lines: u64,
    left_out: u64,
    /// The sentence, of the first that was left out.
    text: String,
}

/// No warning is repeated without a bound: what one place of the code says at `warn` or `error` is written so many
/// times a minute, and the rest is counted and said in one line. Copies share what they count.
#[derive(Clone, Debug, Default)]
pub struct LogRate(Arc<Mutex<HashMap<Identifier, CallSite>>>);

/// That of this program.
pub static OURS: LazyLock<LogRate> = LazyLock::new(LogRate::default);

/// The sentence of a line, without its values.
#[derive(Default)]
struct LineText(String);

impl Visit for LineText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl LogRate {
    fn admits(&self, place: Identifier, now: Instant, text: impl FnOnce() -> String) -> bool {
        let mut places = self.0.lock();
        let fresh = || CallSite { since: now, lines: 0, left_out: 0, text: String::new() };
        let place = places.entry(place).or_insert_with(fresh);
        if now.duration_since(place.since) >= WINDOW && place.left_out == 0 {
            *place = fresh();
        }
        place.lines += 1;
        if place.lines <= LINES_MAX {
            return true;
        }
        if place.left_out == 0 {
            place.text = text();
        }
        place.left_out += 1;
        false
    }

    /// Ends the windows that are over; the sentences of which lines were left out, and how many.
    fn end_windows(&self, now: Instant) -> Vec<(String, u64)> {
        let mut said = Vec::new();
        self.0.lock().retain(|_, place| {
            let over = now.duration_since(place.since) >= WINDOW;
            if over && place.left_out > 0 {
                said.push((std::mem::take(&mut place.text), place.left_out));
            }
            !over
        });
        said
    }

    /// Says each minute what was left out, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(WINDOW / 6) => {}
            }
            for (text, left_out) in self.end_windows(Instant::now()) {
                warn!(
                    left_out,
                    text, "lines of the log were left out: one place had more to say than a reader can use"
                );
            }
        }
    }
}

impl<S: Subscriber> Filter<S> for LogRate {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::WARN {
            return true;
        }
        let text = || {
            let mut text = LineText::default();
            event.record(&mut text);
            text.0
        };
        self.admits(event.metadata().callsite(), Instant::now(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_place_says_the_same_so_often_a_minute_and_others_are_heard() {
        let (rate, lines) = (LogRate::default(), Lines::default());
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let said = tracing_subscriber::registry().with(layer.with_filter(rate.clone()));
        tracing::subscriber::with_default(said, || {
            for n in 0..1_000 {
                warn!(n, "the sink is down");
                tracing::info!(n, "an audit line");
            }
            warn!("another place");
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let count = |part: &str| text.matches(part).count();
        assert_eq!((count("the sink is down"), count("an audit line"), count("another place")), (60, 1_000, 1));
        let over = Instant::now() + WINDOW;
        assert_eq!(rate.end_windows(over), [("the sink is down".to_owned(), 940)]);
        assert_eq!(rate.end_windows(over), [], "it is said once");
    }

    #[test]
    fn a_place_that_was_silent_for_a_minute_is_heard_again() {
        let (rate, now) = (LogRate::default(), Instant::now());
        let mut places = Vec::new();
        let collect = tracing_subscriber::registry().with(tracing_subscriber::fmt::layer().with_writer(std::io::sink));
        tracing::subscriber::with_default(collect, || {
            let span = tracing::error_span!("a place");
            places.push(span.metadata().expect("it is enabled").callsite());
        });
        let say = |now| rate.admits(places[0].clone(), now, || "text".to_owned());
        assert_eq!((0..100).filter(|_| say(now)).count(), 60);
        assert!(!say(now + WINDOW), "what was left out is said first");
        assert_eq!(rate.end_windows(now + WINDOW), [("text".to_owned(), 41)]);
        assert!(say(now + WINDOW));
    }
}
