//! Where the program's own log goes: to the terminal for people, or one JSON object a line.

use std::fmt;
use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use clap::ValueEnum;
use duetime_http::{AUDIT_KEPT, AUDIT_TARGET};
use duetime_lines::{Importance, LineWriter, Output};
use duetime_request::RequestName;
use serde::Deserialize;
use tracing::field::Field;
use tracing::{Event, Metadata, Subscriber, warn};
use tracing_subscriber::field::{MakeExt as _, RecordFields};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer, debug_fn, format};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::{log_rate, panics};

/// The variable that says how much is logged, per module: `info`, `warn,duetime_dispatch=debug` …
const LEVELS: &str = "DUETIME_LOG";

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// What libraries say may have bytes of connections in it, passwords among them, even as an error:
/// it is never logged, whatever the variable says. What matters of it we say ourselves.
fn is_ours(said: &Metadata<'_>) -> bool {
    said.target().starts_with("duetime")
}

/// Writes characters that a terminal or a viewer shows as something else, or not at all, as `\u202e` and the like.
///
/// An id may have them: with U+202E the rest of a line reads backwards, with U+2028 some viewers
/// begin a new one.
struct Escaping<W>(W);

/// Whether a character may change how others are shown. Control characters are the layer's own.
pub(crate) fn misleads(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        // Shown as nothing, or as each font likes.
        | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
        | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{fffe}' | '\u{ffff}'
        | '\u{e0000}'..='\u{10ffff}')
}

/// With those characters as JSON escapes them.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if misleads(c) {
            // As JSON has them: beyond U+FFFF in two parts.
            for part in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{part:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) if !text.is_ascii() && text.contains(misleads) => self.0.write_all(escaped(text).as_bytes())?,
            _ => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// A field of a line for people. An id is whatever a producer says, also what looks like further fields.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let mut text = format!("{value:?}");
    if text.contains(char::is_control) {
        let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        text = text.chars().map(shown).collect();
    }
    if field.name() == "message" {
        return writer.write_str(&text);
    }
    let name = field.name();
    if writer.has_ansi_escapes() {
        write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?;
    } else {
        write!(writer, "{name}=")?;
    }
    let is_one_word = !text.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '='));
    if name == "id" && !is_one_word { write!(writer, "{text:?}") } else { writer.write_str(&text) }
}

/// The fields of a line, and after them those that name the request it is said for.
struct NamingRequest<F>(F);

impl<'writer, F: for<'a> FormatFields<'a>> FormatFields<'writer> for NamingRequest<F> {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        self.0.format_fields(writer.by_ref(), fields)?;
        RequestName::write_fields(|name, value| write!(writer, " {name}={value:?}"))
    }
}

/// One JSON object a line, in which what names the request that it is said for stands beside its own fields.
struct Flat(Format<Json>);

impl Flat {
    fn new() -> Self {
        Self(format().json().flatten_event(true).with_current_span(false).with_span_list(false))
    }
}

impl<S> FormatEvent<S, JsonFields> for Flat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(ctx, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        writer.write_str(line.strip_suffix('}').unwrap_or(line))?;
        // Ids are plain words, and need no escapes.
        RequestName::write_fields(|name, value| write!(writer, ",\"{name}\":\"{value}\""))?;
        writer.write_str("}\n")
    }
}

/// How long the end of the program waits for the log to be written.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// Has the lines of one event written by the log's own thread: whoever logs never waits for whoever reads.
struct QueuedLines {
    writer: LineWriter,
    importance: Importance,
}

impl Write for QueuedLines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.writer.push(line.to_vec(), self.importance);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Makes the writer of each event.
struct LogLines(LineWriter);

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Escaping<QueuedLines>;

    fn make_writer(&'a self) -> Self::Writer {
        Escaping(QueuedLines { writer: self.0.clone(), importance: Importance::Ordinary })
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Self::Writer {
        // What administrators do, where the audit log goes to this one.
        let is_kept = event.target() == AUDIT_TARGET && event.name() == AUDIT_KEPT;
        let importance = if is_kept { Importance::Kept } else { Importance::Ordinary };
        Escaping(QueuedLines { writer: self.0.clone(), importance })
    }
}

/// Waits until the log is written, but not for long.
pub fn flush() {
    if let Some(log) = duetime_lines::log() {
        log.flush(FLUSH_WITHIN);
    }
}

/// Starts logging to standard error. Once per program.
pub fn start(format: LogFormat) -> std::io::Result<()> {
    let went_on = |lost| {
        warn!(lost, "the log is written again; lines were lost while nobody took them");
        None
    };
    let writer = LineWriter::start(panics::LOG_THREAD, Output::stream(std::io::stderr()), Box::new(went_on))?;
    duetime_lines::start_log(writer.clone());
    panics::look_like_log(matches!(format, LogFormat::Json));
    let said = std::env::var(LEVELS).ok();
    let levels = said.as_deref().map(EnvFilter::try_new).and_then(Result::ok);
    let is_wrong = said.is_some() && levels.is_none();
    let levels = levels.unwrap_or_else(|| EnvFilter::new("info"));
    let kept = levels.and(filter_fn(is_ours)).and(log_rate::OURS.clone());
    let lines = tracing_subscriber::fmt::layer().with_writer(LogLines(writer));
    let all = tracing_subscriber::registry();
    match format {
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            let fields = NamingRequest(debug_fn(write_field).delimited(" "));
            all.with(lines.with_ansi(ansi).with_target(false).fmt_fields(fields).with_filter(kept)).init();
        }
        LogFormat::Json => all.with(lines.json().event_format(Flat::new()).with_filter(kept)).init(),
    }
    if is_wrong {
        warn!(
            "{LEVELS} cannot be read, so \"info\" is logged; write it like \"info\" or \"warn,duetime_dispatch=debug\""
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_mislead_a_reader_is_escaped_and_the_rest_is_left() {
        let mut out = Escaping(Vec::new());
        out.write_all("id=a\u{202e}b\u{2028}c\u{200b}d\u{2066}e ünï→😀\n".as_bytes()).unwrap();
        let text = String::from_utf8(out.0).unwrap();
        assert_eq!(text, "id=a\\u202eb\\u2028c\\u200bd\\u2066e ünï→😀\n");
        for one in ["a\u{202e}", "a\u{e0041}", "\u{3164}", "\u{2800}", "\u{e000}"] {
            assert!(escaped(one).is_ascii());
            let line: serde_json::Value = serde_json::from_str(&format!("\"{}\"", escaped(one))).unwrap();
            assert_eq!(line, one, "in JSON it is the same character");
        }
    }

    #[test]
    fn an_id_that_looks_like_further_fields_is_quoted() {
        #[derive(Clone, Default)]
        struct Lines(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);
        impl Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let to = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || to.clone()).with_ansi(false).without_time();
        let layer = layer.with_target(false).fmt_fields(debug_fn(write_field).delimited(" "));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!(id = %"a k=\"v\" attempt=9", attempt = 1, topic = "orders", "delivered\u{7}");
            tracing::info!(id = %"order-1", "delivered");
        });
        let text = String::from_utf8(std::mem::take(&mut *lines.0.lock())).unwrap();
        let (first, second) = text.trim_end().split_once('\n').unwrap();
        assert_eq!(first.trim(), r#"INFO delivered\u{7} id="a k=\"v\" attempt=9" attempt=1 topic="orders""#);
        assert_eq!(second.trim(), "INFO delivered id=order-1");
    }
}
