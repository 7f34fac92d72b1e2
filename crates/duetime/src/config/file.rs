//! The configuration file, its lines, and what overlays it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use duetime_core::suggest;
use duetime_ownership::EtcdConfig;
use duetime_sinks::SinkConfig;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};
use zeroize::Zeroizing;

use super::first_message::{self, is_pattern};
use super::read::{self, ConfigFault};
use super::store::{self, DEFAULT_STORE};
use super::{Config, OwnershipConfig, OwnershipMode, check};

/// The sections that a file may have.
pub const SECTIONS: [&str; 10] =
    ["node", "store", "ownership", "resize", "auth", "console", "sinks", "sinks_by_api", "topics", "topics_default"];

/// Where a fault lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In this line of the file, from 1.
    Line(PathBuf, usize),
    /// In a flag or its variable.
    Flag(&'static str),
    /// In what several keys say together, or in the file as a whole.
    Whole,
}

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub struct Complaint {
    /// Where.
    pub origin: Origin,
    /// What, and how to fix it.
    pub text: String,
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.origin {
            Origin::Line(file, line) => write!(f, "{}:{line}: {}", file.display(), self.text),
            Origin::Flag(flag) => {
                let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
                write!(f, "{flag} or DUETIME_{variable}: {}", self.text)
            }
            Origin::Whole => f.write_str(&self.text),
        }
    }
}

/// One value given by a flag or a variable.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// The flag, for complaints.
    pub flag: &'static str,
    /// Section and key.
    pub key: (&'static str, &'static str),
    /// What it says.
    pub value: Value,
}

/// What was read.
#[derive(Debug)]
pub struct ReadConfig {
    /// What it says.
    pub config: Config,
    /// Where it says so.
    pub lines: ConfigLines,
}

/// Where each key comes from, to name it whenever something turns out to be wrong with its value.
#[derive(Clone, Debug)]
pub struct ConfigLines {
    file: PathBuf,
    text: Zeroizing<String>,
    overlays: Vec<Overlay>,
}

impl ConfigLines {
    /// Reads a file.
    pub(super) fn read(file: &Path) -> Result<Self, Vec<Complaint>> {
        let text = std::fs::read_to_string(file).map(Zeroizing::new).map_err(|error| {
            let text = format!("cannot read the configuration file {}: {error}", file.display());
            vec![Complaint { origin: Origin::Whole, text }]
        })?;
        Ok(Self { file: file.to_owned(), text, overlays: Vec::new() })
    }

    /// The keys of the file.
    pub(super) fn table(&self) -> Result<Table, Vec<Complaint>> {
        self.text.parse().map_err(|error: toml::de::Error| {
            let span = error.span().unwrap_or_default();
            let origin = self.at(span.start);
            vec![Complaint { origin, text: read::not_toml(error.message(), self.text.get(span).unwrap_or_default()) }]
        })
    }

    /// Every section that a file does not have.
    pub(super) fn check_sections(&self, table: &Table) -> Result<(), Vec<Complaint>> {
        let source = self.source();
        let unknown = table.keys().filter(|key| !SECTIONS.contains(&key.as_str()));
        let complaints: Vec<Complaint> = unknown
            .map(|key| Complaint {
                origin: source.origin(std::slice::from_ref(key)),
                text: suggest::unknown("section", key, &SECTIONS),
            })
            .collect();
        if complaints.is_empty() { Ok(()) } else { Err(complaints) }
    }

    /// That `fault` is wrong with the value at `path`.
    #[must_use]
    pub fn complaint(&self, path: &[&str], fault: impl Into<String>) -> Complaint {
        self.complaint_at(path, None, fault)
    }

    /// The same, where it is known which key below `path` has to be changed.
    #[must_use]
    pub fn complaint_at(&self, path: &[&str], key: Option<&str>, fault: impl Into<String>) -> Complaint {
        self.source().complaint((path.iter().map(|key| (*key).to_owned()).collect(), fault.into()), key)
    }

    fn source(&self) -> FileSource<'_> {
        FileSource { lines: self, spans: DeTable::parse(&self.text).ok().map(Spanned::into_inner) }
    }

    /// The line of the file in which this byte is.
    fn at(&self, offset: usize) -> Origin {
        let line = self.text[..offset.min(self.text.len())].matches('\n').count() + 1;
        Origin::Line(self.file.clone(), line)
    }
}

struct FileSource<'a> {
    lines: &'a ConfigLines,
    spans: Option<DeTable<'a>>,
}

impl FileSource<'_> {
    /// The line of the deepest key of `path` that is in the file.
    fn origin(&self, path: &[String]) -> Origin {
        if let [section, key, ..] = path
            && let Some(overlay) =
                self.lines.overlays.iter().find(|overlay| overlay.key == (section.as_str(), key.as_str()))
        {
            return Origin::Flag(overlay.flag);
        }
        let Some(root) = &self.spans else { return Origin::Whole };
        let mut keys = path.iter();
        let first = keys.next().and_then(|key| root.iter().find(|(name, _)| name.get_ref().as_ref() == key.as_str()));
        let Some((name, mut at)) = first else { return Origin::Whole };
        let mut found = name.span().start;
        for key in keys {
            let step = match at.get_ref() {
                DeValue::Table(table) => table.iter().find(|(name, _)| name.get_ref().as_ref() == key.as_str()),
                DeValue::Array(items) => {
                    let item = key.parse().ok().and_then(|place: usize| items.get(place));
                    if let Some(item) = item {
                        (found, at) = (item.span().start, item);
                    }
                    continue;
                }
                _ => None,
            };
            let Some((name, value)) = step else { break };
            (found, at) = (name.span().start, value);
        }
        self.lines.at(found)
    }

    /// `key`: below the path of the fault, the one that has to be changed.
    fn complaint(&self, (mut path, text): ConfigFault, key: Option<&str>) -> Complaint {
        let text = format!("{}: {text}", path.join("."));
        path.extend(key.map(str::to_owned));
        Complaint { origin: self.origin(&path), text }
    }
}

/// The sections as far as they can be read, and what is wrong with them.
struct SectionsRead<'a> {
    table: &'a Table,
    faults: Vec<ConfigFault>,
}

impl SectionsRead<'_> {
    fn note(&mut self, section: &[&str], faults: Vec<ConfigFault>) {
        let whole = |inner: Vec<String>| section.iter().map(|key| (*key).to_owned()).chain(inner).collect();
        self.faults.extend(faults.into_iter().map(|(path, text)| (whole(path), text)));
    }

    fn section<T: DeserializeOwned + Default>(&mut self, name: &str) -> T {
        self.section_by(name, read::section)
    }

    fn section_by<T: Default>(&mut self, name: &str, read: impl Fn(&Table) -> read::Read<T>) -> T {
        match self.table.get(name) {
            None => T::default(),
            Some(Value::Table(table)) => {
                let read = read(table);
                self.note(&[name], read.faults);
                read.value.unwrap_or_default()
            }
            Some(_) => {
                self.note(&[name], vec![(Vec::new(), format!("must be a section, [{name}]"))]);
                T::default()
            }
        }
    }

    /// The sections of a section that `is_one` of these takes by their names.
    fn named<T>(
        &mut self,
        section: &str,
        is_one: impl Fn(&str) -> bool,
        read: impl Fn(&Table) -> read::Read<T>,
    ) -> BTreeMap<String, T> {
        let mut all = BTreeMap::new();
        match self.table.get(section) {
            None => {}
            Some(Value::Table(table)) => {
                for (name, value) in table.iter().filter(|(name, _)| is_one(name)) {
                    let Value::Table(table) = value else {
                        self.note(
                            &[section, name],
                            vec![(Vec::new(), format!("must be a section, [{section}.{name}]"))],
                        );
                        continue;
                    };
                    let read = read(table);
                    self.note(&[section, name], read.faults);
                    all.extend(read.value.map(|value| (name.clone(), value)));
                }
            }
            Some(_) => self.note(&[section], vec![(Vec::new(), format!("must be sections, [{section}.NAME]"))]),
        }
        all
    }
}

/// Reads who shares the shards: `mode` is the program's, all else is about etcd.
fn ownership(table: &Table) -> read::Read<OwnershipConfig> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Choice {
        mode: OwnershipMode,
    }
    let known: Vec<&str> = std::iter::once("mode").chain(read::keys::<EtcdConfig>()).collect();
    let (mut choice, mut etcd, mut faults) = (Table::new(), Table::new(), Vec::new());
    for (key, value) in table {
        if !known.contains(&key.as_str()) {
            faults.push((vec![key.clone()], suggest::unknown("key", key, &known)));
            continue;
        }
        let part = if key == "mode" { &mut choice } else { &mut etcd };
        part.insert(key.clone(), value.clone());
    }
    let (choice, read) = (read::section::<Choice>(&choice), read::section::<EtcdConfig>(&etcd));
    read::wipe(etcd);
    faults.extend(choice.faults.into_iter().chain(read.faults));
    let value = OwnershipConfig { mode: choice.value.unwrap_or_default().mode, etcd: read.value.unwrap_or_default() };
    read::Read { value: Some(value), faults }
}

/// Reads one sink by its `type`.
fn sink(table: &Table) -> read::Read<SinkConfig> {
    let fault = |text: String| read::Read { value: None, faults: vec![(vec!["type".to_owned()], text)] };
    let mut settings = table.clone();
    let types = SinkConfig::TYPES.iter().map(|kind| format!("{kind:?}")).collect::<Vec<_>>().join(", ");
    let kind = match settings.remove("type") {
        Some(Value::String(kind)) => kind,
        Some(_) => return fault(format!("wrong value, expected one of {types}")),
        None => return fault(format!("\"type\" is missing; give one of {types}")),
    };
    if !SinkConfig::TYPES.contains(&kind.as_str()) {
        return fault(suggest::unknown("type", &kind, SinkConfig::TYPES));
    }
    read::section_by(&settings, |from| {
        let missing = || serde::de::Error::custom(format!("this program was built without sinks of type {kind:?}"));
        SinkConfig::read(&kind, from).unwrap_or_else(|| Err(missing()))
    })
}

/// Reads the file, if there is one, lays `overlays` over it, and says all that is wrong.
///
/// # Errors
///
/// Every complaint, in the order of the file.
pub fn load(file: Option<&Path>, overlays: &[Overlay]) -> Result<ReadConfig, Vec<Complaint>> {
    let lines = file.map(ConfigLines::read).transpose()?;
    let lines =
        lines.unwrap_or_else(|| ConfigLines { file: PathBuf::new(), text: Zeroizing::default(), overlays: Vec::new() });
    parse_lines(ConfigLines { overlays: overlays.to_vec(), ..lines })
}

/// Whether a node would take a file of this text.
///
/// # Errors
///
/// Every complaint, in the order of the file.
pub fn check_text(text: &str, file: PathBuf) -> Result<(), Vec<Complaint>> {
    parse(text, file, &[]).map(drop)
}

/// Reads what a file says that is not there.
///
/// # Errors
///
/// Every complaint, in the order of the file.
pub fn parse(text: &str, file: PathBuf, overlays: &[Overlay]) -> Result<ReadConfig, Vec<Complaint>> {
    parse_lines(ConfigLines { file, text: text.to_owned().into(), overlays: overlays.to_vec() })
}

fn parse_lines(lines: ConfigLines) -> Result<ReadConfig, Vec<Complaint>> {
    let mut table = lines.table()?;
    for overlay in &lines.overlays {
        let (section, key) = overlay.key;
        let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Some(section) = section.as_table_mut() {
            section.insert(key.to_owned(), overlay.value.clone());
        }
    }
    let store = table.entry("store").or_insert_with(|| Value::Table(Table::new()));
    if let Some(store) = store.as_table_mut() {
        store.entry("url").or_insert_with(|| Value::String(DEFAULT_STORE.to_owned()));
    }
    let source = lines.source();
    let mut complaints = lines.check_sections(&table).err().unwrap_or_default();
    let mut reading = SectionsRead { table: &table, faults: Vec::new() };
    let mut config = Config {
        node: reading.section("node"),
        store: reading.section_by("store", store::section),
        ownership: reading.section_by("ownership", ownership),
        resize: reading.section("resize"),
        console: reading.section("console"),
        auth: reading.section("auth"),
        sinks: reading.named("sinks", |_| true, sink),
        sinks_by_api: reading.section("sinks_by_api"),
        topics: reading.named("topics", |name| !is_pattern(name), read::section),
        topic_patterns: reading.named("topics", is_pattern, first_message::pattern),
        topics_default: reading.section_by("topics_default", first_message::topics_default),
    };
    for name in table.get("topics").and_then(Value::as_table).into_iter().flat_map(Table::keys) {
        let checked = if is_pattern(name) {
            first_message::example_of(name).map(drop)
        } else {
            duetime_core::TopicName::new(name).and_then(|topic| topic.check_new()).map_err(|error| error.to_string())
        };
        if let Err(fault) = checked {
            reading.note(&["topics", name], vec![(Vec::new(), fault)]);
        }
    }
    let wrong: Vec<Vec<String>> = reading.faults.iter().map(|(path, _)| path.clone()).collect();
    let read = reading.faults.into_iter().map(|fault| source.complaint(fault, None));
    complaints.extend(read);
    complaints.extend(check::faults(&config, &wrong).into_iter().map(|(fault, key)| source.complaint(fault, key)));
    // As they stand in the file, so that they can be fixed from top to bottom.
    complaints.sort_by_key(|complaint| match &complaint.origin {
        Origin::Line(_, line) => *line,
        Origin::Flag(_) | Origin::Whole => 0,
    });
    drop(source);
    config.auth.seal();
    read::wipe(table);
    if complaints.is_empty() { Ok(ReadConfig { config, lines }) } else { Err(complaints) }
}
