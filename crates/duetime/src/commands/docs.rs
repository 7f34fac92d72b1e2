//! `duetime docs`: the documents of this version, which are in the program.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use clap::Args;

use super::output;

macro_rules! pages {
    ($($name:literal: $path:literal,)*) => {
        &[$(($name, include_str!(concat!("../../../../", $path)))),*]
    };
}

/// Each page, by its name; first what is read first.
const PAGES: &[(&str, &str)] = pages! {
    "readme": "README.md",
    "tutorial": "docs/TUTORIAL.md",
    "recipes": "docs/RECIPES.md",
    "scope": "docs/SCOPE.md",
    "moving": "docs/MOVING.md",
    "clients": "docs/CLIENTS.md",
    "clients/python": "docs/clients/python.md",
    "clients/typescript": "docs/clients/typescript.md",
    "clients/go": "docs/clients/go.md",
    "api": "docs/API.md",
    "api/produce": "docs/api/produce.md",
    "api/consume": "docs/api/consume.md",
    "api/topics": "docs/api/topics.md",
    "api/operate": "docs/api/operate.md",
    "commands": "docs/COMMANDS.md",
    "sinks": "docs/SINKS.md",
    "configuration": "docs/CONFIGURATION.md",
    "capacity": "docs/CAPACITY.md",
    "operations": "docs/OPERATIONS.md",
    "runbooks": "docs/RUNBOOKS.md",
    "console": "docs/CONSOLE.md",
    "ownership": "docs/OWNERSHIP.md",
    "resize": "docs/RESIZE.md",
    "embedded": "docs/EMBEDDED.md",
    "compatibility": "docs/COMPATIBILITY.md",
    "protocol": "docs/PROTOCOL.md",
    "glossary": "docs/GLOSSARY.md",
};

/// A page, or a place in it.
#[derive(Debug, Args)]
pub struct DocsArgs {
    /// The page, as the list has it or as a link names it: `sinks`, `sinks#webhooks`, `api/topics.md#remember`. Without
    /// one all pages are listed.
    #[arg(value_name = "PAGE[#SECTION]")]
    page: Option<String>,
    /// Show the lines that have this text, whatever its case, with the section of each.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
}

/// A heading and what stands below it, up to the next one.
struct Section<'a> {
    /// 1: the page's title.
    level: usize,
    title: &'a str,
    lines: Vec<&'a str>,
}

impl Section<'_> {
    /// What a link calls it.
    fn anchor(&self) -> String {
        let kept = |c: char| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then_some(c),
        };
        self.title.to_lowercase().chars().filter_map(kept).collect()
    }
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let (mut found, mut is_code) = (Vec::<Section<'_>>::new(), false);
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        match line[level..].strip_prefix(' ').filter(|_| level > 0 && !is_code) {
            Some(title) => found.push(Section { level, title, lines: vec![line] }),
            None => found.iter_mut().rev().take(1).for_each(|section| section.lines.push(line)),
        }
    }
    found
}

/// The page of a name or of a link.
fn page(name: &str) -> anyhow::Result<(&'static str, &'static str)> {
    let lower = name.to_lowercase();
    let plain = lower.trim_start_matches("../").trim_start_matches("docs/").trim_end_matches(".md");
    let ends_so = |known: &str| known.rsplit('/').next() == Some(plain);
    let found = PAGES.iter().find(|(known, _)| *known == plain).or_else(|| PAGES.iter().find(|page| ends_so(page.0)));
    let advice = "`duetime docs` lists them, and finds a word in them with";
    found.copied().with_context(|| format!("no page is called {name:?}; {advice} `--search {name:?}`"))
}

/// The section, with those below it.
fn section(name: &str, text: &str, wanted: &str) -> anyhow::Result<String> {
    let all = sections(text);
    let Some(at) = all.iter().position(|section| section.anchor() == wanted.to_lowercase()) else {
        let known: Vec<String> = all.iter().map(Section::anchor).collect();
        bail!("{name} has no section {wanted:?}; it has {}", known.join(", "))
    };
    let below = all[at + 1..].iter().take_while(|section| section.level > all[at].level);
    let lines: Vec<&str> = all[at..=at].iter().chain(below).flat_map(|section| section.lines.iter().copied()).collect();
    Ok(lines.join("\n"))
}

/// Shows a long text: by the pager, where somebody reads it and has one.
fn show(text: &str) -> anyhow::Result<()> {
    let text = format!("{}\n", text.trim_end());
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.is_empty() && std::io::stdout().is_terminal());
    let Some(pager) = pager else { return output::raw(text.as_bytes()) };
    let mut reader =
        Command::new("sh").args(["-c", &pager]).stdin(Stdio::piped()).spawn().context("starting $PAGER")?;
    let written = reader.stdin.take().expect("it is piped").write_all(text.as_bytes());
    // Who has read enough leaves before the end.
    written.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })?;
    reader.wait().context("waiting for $PAGER")?;
    Ok(())
}

/// `duetime docs`.
pub fn run(args: &DocsArgs) -> anyhow::Result<bool> {
    let asked = args.page.as_deref().map(|asked| asked.split_once('#').unwrap_or((asked, "")));
    let one = asked.map(|(name, _)| page(name)).transpose()?;
    if let Some(wanted) = &args.search {
        let wanted = wanted.to_lowercase();
        let all = PAGES.iter().filter(|page| one.is_none_or(|one| one.0 == page.0));
        let all = all.flat_map(|(name, text)| sections(text).into_iter().map(move |section| (name, section)));
        let rows = all.flat_map(|(name, section)| {
            let place = format!("{name}#{}", section.anchor());
            let has = |line: &&&str| line.to_lowercase().contains(&wanted);
            section.lines.iter().filter(has).map(|line| vec![place.clone(), line.trim().to_owned()]).collect::<Vec<_>>()
        });
        let rows: Vec<_> = rows.collect();
        let found = !rows.is_empty();
        output::table(&["section", "line"], rows, "no page has it")?;
        return Ok(found);
    }
    match (asked, one) {
        (Some((_, "")), Some((_, text))) => show(text)?,
        (Some((_, wanted)), Some((name, text))) => show(&section(name, text, wanted)?)?,
        _ => {
            let title = |text: &'static str| sections(text).first().map_or("", |first| first.title).to_owned();
            let rows = PAGES.iter().map(|(name, text)| vec![(*name).to_owned(), title(text)]).collect();
            output::table(&["page", "title"], rows, "")?;
        }
    }
    Ok(true)
}
