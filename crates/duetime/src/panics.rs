//! What a panic of the program prints: where and why, without a secret that the configuration holds.
//!
//! The text of a panic may be made of anything, such as an error with the address of a server in it. It is printed here and
//! nowhere else: what catches a panic says that there was one, and that its line has more.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_lines::Importance;
use duetime_settings::{Redactor, without_hashed};
use serde_json::json;

/// The thread that writes the log: its own panics are not for itself to write.
pub(crate) const LOG_THREAD: &str = "duetime-log";
/// How long a panic waits until its line is written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// What is printed of a text at most.
const TEXT_BYTES_MAX: usize = 4000;

/// Whether the log's lines are objects of JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Prints panics from now on. Once per program, before anything else.
pub fn start() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        let mut line = line_of(panic, (backtrace.status() == BacktraceStatus::Captured).then_some(&backtrace));
        line.push('\n');
        // Not through the log: what panicked may hold a lock of it. Where lines have a thread of their own, that one
        // writes this one too, for nobody else may wait for whoever reads; it is waited for, as the program may end now.
        match duetime_lines::log().filter(|_| std::thread::current().name() != Some(LOG_THREAD)) {
            Some(log) => {
                log.push(line.into_bytes(), Importance::Ordinary);
                log.flush(WRITTEN_WITHIN);
            }
            None => drop(nix::unistd::write(std::io::stderr(), line.as_bytes())),
        }
    }));
}

/// From now on these are not shown. What was read as a [`duetime_settings::Secret`] is known already.
pub fn hide(secrets: Vec<String>) {
    Redactor::new(secrets);
}

/// From now on they look as the other lines of the log do.
pub fn look_like_log(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

fn line_of(panic: &PanicHookInfo<'_>, backtrace: Option<&Backtrace>) -> String {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let text = redact(panic.payload_as_str().unwrap_or("without a message"));
    let time = jiff::Timestamp::now();
    let sentence = "the program panicked; report it";
    if IS_JSON.load(Ordering::Relaxed) {
        let mut line = json!({
            "timestamp": format!("{time:.6}"), "level": "ERROR", "target": "duetime::panics", "message": sentence,
            "thread": thread, "place": place, "text": text,
        });
        if let Some(backtrace) = backtrace {
            line["backtrace"] = backtrace.to_string().into();
        }
        return line.to_string();
    }
    let backtrace = backtrace.map(|backtrace| format!("\n{backtrace}")).unwrap_or_default();
    format!("{time:.6} ERROR {sentence} thread={thread:?} place={place:?} text={text:?}{backtrace}")
}

/// Without what the configuration holds, and without users and passwords in addresses, whosever they are.
fn redact(text: &str) -> String {
    let text = Redactor::of_all_secrets().redact(&without_hashed(text), TEXT_BYTES_MAX);
    let mut pieces = text.split("://");
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(char::is_whitespace).unwrap_or(piece.len());
        let place = piece[..end].rfind('@').map_or(piece, |at| &piece[at..]);
        shown.push_str(if place.len() < piece.len() { "://***" } else { "://" });
        shown.push_str(place);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_panic_says_is_shown_without_what_is_secret_in_it() {
        Redactor::new(["a-password-of-a-broker".to_owned()]);
        for (said, shown) in [
            ("index out of bounds: the len is 3 but the index is 7", None),
            ("called `Result::unwrap()` on an `Err` value: Refused(\"a-password-of-a-broker\")", Some("a-password")),
            ("cannot reach amqp://shop:of-nobody-known@mq.example:5672/v, sorry", Some("of-nobody-known")),
            ("no redis://u-1:p-1@c:1 nor redis://d:e@f:2", Some("p-1")),
            ("see http://mq.example/ for more", None),
        ] {
            let cleaned = redact(said);
            match shown {
                None => assert_eq!(cleaned, said),
                Some(secret) => assert!(cleaned.contains("***") && !cleaned.contains(secret), "{cleaned}"),
            }
        }
        assert_eq!(redact("no redis://u-1:p-1@c:1 nor redis://d:e@f:2"), "no redis://***@c:1 nor redis://***@f:2");
    }
}
