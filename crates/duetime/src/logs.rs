//! Where the program's own log goes: to the terminal for people, or one JSON object a line.

use std::fmt;
use std::io::{IsTerminal as _, Write};

use clap::ValueEnum;
use serde::Deserialize;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer, format};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
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
fn misleads(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if misleads(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
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

/// One JSON object a line, in which the fields of the spans that it is said in stand beside its own.
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
        for span in ctx.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>().map_or("{}", |fields| fields.as_str());
            let fields = fields.strip_prefix('{').and_then(|fields| fields.strip_suffix('}')).unwrap_or_default();
            if !fields.is_empty() {
                write!(writer, ",{fields}")?;
            }
        }
        writer.write_str("}\n")
    }
}

/// Starts logging to standard error. Once per program.
pub fn start(format: LogFormat) {
    panics::look_like_log(matches!(format, LogFormat::Json));
    let levels = EnvFilter::try_from_env(LEVELS).unwrap_or_else(|_| EnvFilter::new("info"));
    let kept = levels.and(filter_fn(is_ours)).and(log_rate::OURS.clone());
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Escaping(std::io::stderr()));
    let all = tracing_subscriber::registry();
    match format {
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            all.with(lines.with_ansi(ansi).with_target(false).with_filter(kept)).init();
        }
        LogFormat::Json => all.with(lines.json().event_format(Flat::new()).with_filter(kept)).init(),
    }
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
        let line: serde_json::Value = serde_json::from_str(&format!("\"{}\"", escaped("a\u{202e}"))).unwrap();
        assert_eq!(line, "a\u{202e}", "in JSON it is the same character");
    }
}
