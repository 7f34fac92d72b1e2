//! Tables for people, JSON for programs, times as people read them.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use duetime_client::{ClientError, NodeAnswer};
use duetime_core::{Timestamp, units};
use serde::Serialize;

use crate::connection::now;
use crate::logs::{escaped, misleads};

/// How much of a payload a table shows.
const SHOWN_MAX: usize = 60;

/// Writes bytes to standard output as they are.
pub fn raw(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

/// Writes one line for people, or several. What producers and consumers wrote is in it, and must not steer a terminal.
pub fn line(text: &str) -> anyhow::Result<()> {
    raw(format!("{}\n", harmless(text)).as_bytes())
}

/// With what steers a terminal, or changes how the rest is shown, written as `\u001b` and the like.
pub fn harmless(text: &str) -> String {
    let steers = |c: char| c.is_control() && c != '\n';
    if !text.contains(|c: char| steers(c) || misleads(c)) {
        return text.to_owned();
    }
    let part = |c: char| if steers(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    escaped(&text.chars().map(part).collect::<String>())
}

/// Writes JSON: indented on a terminal, one line otherwise.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = if std::io::stdout().is_terminal() {
        escaped(&serde_json::to_string_pretty(value)?)
    } else {
        serde_json::to_string(value)?
    };
    raw(format!("{text}\n").as_bytes())
}

/// Writes a table, or a word where it has no rows.
pub fn table(head: &[&str], rows: Vec<Vec<String>>, none: &str) -> anyhow::Result<()> {
    if rows.is_empty() {
        return line(none);
    }
    let mut table = plain(rows);
    table.set_header(head.iter().map(|name| name.to_uppercase()));
    line(&trimmed(&table))
}

/// Writes names and values.
pub fn pairs(rows: Vec<(&str, String)>) -> anyhow::Result<()> {
    line(&trimmed(&plain(rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect())))
}

fn plain(rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.add_rows(rows.into_iter().map(|row| row.into_iter().map(|cell| harmless(&cell)).collect::<Vec<_>>()));
    table
}

/// Without the blanks that fill up the last column.
fn trimmed(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// `1 message`, `2 messages`: how many there are of what is called so.
pub fn count(number: u64, one: &str) -> String {
    let many = if number == 1 { "" } else { "s" };
    format!("{number} {one}{many}")
}

/// ` (3s later than asked for: the topic's smear)`, where the topic of a message has a `smear`.
pub fn smeared(millis: Option<u64>) -> String {
    let later = millis.map(|millis| units::show_duration(Duration::from_millis(millis)));
    later.map(|later| format!(" ({later} later than asked for: the topic's smear)")).unwrap_or_default()
}

/// `30m from now`, `5s ago`.
pub fn away(millis: i64) -> String {
    let (at, now) = (Timestamp::from_millis(millis), now());
    if at > now { format!("in {}", rounded(at.since(now))) } else { format!("{} ago", rounded(now.since(at))) }
}

/// To whole seconds, and from an hour on to whole minutes, up or down.
fn rounded(span: Duration) -> String {
    let to = |unit: u64| Duration::from_millis((span.as_millis() as u64 + unit / 2) / unit * unit);
    match span.as_millis() {
        0..1000 => units::show_duration(span),
        1000..3_599_500 => units::show_duration(to(1000)),
        _ => units::show_duration(to(60_000)),
    }
}

/// A moment and how far away it is.
pub fn moment(millis: i64) -> String {
    format!("{} ({})", Timestamp::from_millis(millis), away(millis))
}

/// A moment, without milliseconds where there are none.
pub fn second(millis: i64) -> String {
    Timestamp::from_millis(millis).to_string().replace(".000Z", "Z")
}

/// A payload, cut for a table.
pub fn payload(text: Option<&str>, base64: Option<&str>) -> String {
    let (text, mark) = match (text, base64) {
        (Some(text), _) => (text, ""),
        (None, Some(base64)) => (base64, "base64:"),
        (None, None) => ("", ""),
    };
    let shown: String = text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let more = if text.chars().count() > SHOWN_MAX { "…" } else { "" };
    format!("{mark}{shown}{more}")
}

/// Arguments as they are `given`, whatever they look like; or, from `stdin`, the lines of standard input.
pub fn arguments(given: Vec<String>, stdin: bool) -> anyhow::Result<Vec<String>> {
    if !stdin {
        return Ok(given);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
    let all = lines_of(&text);
    ensure!(!all.is_empty(), "standard input named nothing; write one a line");
    Ok(all)
}

/// Lines as they are, for an id may begin or end with a blank; without empty ones.
fn lines_of(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Asks on standard error, and reads the answer; true: yes.
pub fn agreed(question: &str) -> anyhow::Result<bool> {
    eprint!("{} [y/N] ", harmless(question));
    let mut said = String::new();
    std::io::stdin().read_line(&mut said).context("reading the answer")?;
    Ok(matches!(said.trim(), "y" | "Y" | "yes"))
}

/// Says on standard error what is wrong. What producers wrote may be in it, and must not steer a terminal.
pub fn complain(text: &str) {
    let colour = std::io::stderr().is_terminal();
    let (on, off) = if colour { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    eprintln!("{on}error{off}: {}", harmless(text));
}

/// Says on standard error what is dangerous, though nothing is wrong.
pub fn warn(text: &str) {
    eprintln!("warning: {}", harmless(text));
}

/// An error with its causes.
pub fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors show their cause themselves.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Says an error with its causes and what to do next.
pub fn report(error: &anyhow::Error) {
    if let Some(io) = error.downcast_ref::<std::io::Error>()
        && io.kind() == std::io::ErrorKind::BrokenPipe
    {
        return;
    }
    let mut text = chain(error);
    if let Some(ClientError::Unreachable { .. }) = error.downcast_ref::<ClientError>() {
        text += "; is a node running? start one with `duetime serve`";
    }
    if let Some(problem) = error.downcast_ref::<ClientError>().and_then(ClientError::problem)
        && problem.status == 401
    {
        text += "; give it with --token or DUETIME_TOKEN";
    }
    complain(&text);
}

/// Says which nodes are not in an answer about all of them; false: some are not.
pub fn all_answered(nodes: Option<&[NodeAnswer]>) -> bool {
    let missing = nodes.into_iter().flatten().filter(|node| !node.answered);
    let said = missing.inspect(|node| {
        let why = node.reason.as_deref().unwrap_or("has not answered");
        eprintln!("node {:?} {why}: what it knows is missing here", node.name);
    });
    said.count() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_called_as_many_are() {
        assert_eq!([0, 1, 2].map(|number| count(number, "shard")), ["0 shards", "1 shard", "2 shards"]);
    }

    #[test]
    fn an_id_on_a_line_keeps_its_blanks() {
        assert_eq!(lines_of("a\n\n b \r\n"), ["a", " b "]);
    }

    #[test]
    fn what_others_wrote_does_not_steer_a_terminal() {
        let shown = harmless("\u{1b}[31mRED\u{1b}]0;title\u{7} \0 \u{202e}abc\u{9b}2J\r\nnext \u{e9} \u{1f600}");
        assert_eq!(
            shown,
            "\\u001b[31mRED\\u001b]0;title\\u0007 \\u0000 \\u202eabc\\u009b2J\\u000d\nnext \u{e9} \u{1f600}"
        );
        assert_eq!(harmless("plain: \u{fc}ber 30 m\n"), "plain: \u{fc}ber 30 m\n");
        let table = plain(vec![vec!["\u{1b}[2J".to_owned()]]);
        assert_eq!(trimmed(&table).trim(), "\\u001b[2J");
    }

    #[test]
    fn what_is_almost_half_an_hour_away_is_half_an_hour_away() {
        let shown = |millis| rounded(Duration::from_millis(millis));
        assert_eq!([shown(1_799_990), shown(999), shown(1_400), shown(59_700)], ["30m", "999ms", "1s", "1m"]);
        assert_eq!([shown(3_599_800), shown(3_629_000), shown(7_231_000)], ["1h", "1h", "2h 1m"]);
    }
}
