//! The configuration file, its lines, and what overlays it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::Config;
use super::read::{self, Fault};

const SECTIONS: [&str; 7] = ["node", "store", "ownership", "resize", "auth", "sinks", "topics"];

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
    /// What, and how to mend it.
    pub text: String,
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.origin {
            Origin::Line(file, line) => write!(f, "{}:{line}: {}", file.display(), self.text),
            Origin::Flag(flag) => write!(f, "{flag}: {}", self.text),
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

struct Source<'a> {
    file: PathBuf,
    text: &'a str,
    spans: Option<DeTable<'a>>,
    overlays: &'a [Overlay],
}

impl Source<'_> {
    fn line(&self, offset: usize) -> usize {
        self.text[..offset.min(self.text.len())].matches('\n').count() + 1
    }

    /// The line of the deepest key of `path` that is in the file.
    fn origin(&self, path: &[String]) -> Origin {
        if let [section, key, ..] = path
            && let Some(overlay) = self.overlays.iter().find(|overlay| overlay.key == (section.as_str(), key.as_str()))
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
        Origin::Line(self.file.clone(), self.line(found))
    }

    fn complain(&self, section: &[&str], faults: Vec<Fault>, complaints: &mut Vec<Complaint>) {
        for (inner, text) in faults {
            let path: Vec<String> = section.iter().map(|key| (*key).to_owned()).chain(inner).collect();
            let text = format!("{}: {text}", path.join("."));
            complaints.push(Complaint { origin: self.origin(&path), text });
        }
    }

    fn section<T: DeserializeOwned + Default>(
        &self,
        path: &[&str],
        value: Option<&Value>,
        complaints: &mut Vec<Complaint>,
    ) -> T {
        match value {
            None => T::default(),
            Some(value) => self.required(path, value, complaints).unwrap_or_default(),
        }
    }

    fn required<T: DeserializeOwned>(
        &self,
        path: &[&str],
        value: &Value,
        complaints: &mut Vec<Complaint>,
    ) -> Option<T> {
        let Value::Table(table) = value else {
            let fault = (Vec::new(), format!("must be a section, [{}]", path.join(".")));
            self.complain(path, vec![fault], complaints);
            return None;
        };
        read::section(table).map_err(|faults| self.complain(path, faults, complaints)).ok()
    }

    fn named<T: DeserializeOwned>(
        &self,
        section: &str,
        value: Option<&Value>,
        complaints: &mut Vec<Complaint>,
    ) -> BTreeMap<String, T> {
        let mut read = BTreeMap::new();
        match value {
            None => {}
            Some(Value::Table(table)) => {
                for (name, value) in table {
                    if let Some(one) = self.required(&[section, name], value, complaints) {
                        read.insert(name.clone(), one);
                    }
                }
            }
            Some(_) => {
                let fault = (Vec::new(), format!("must be sections, [{section}.NAME]"));
                self.complain(&[section], vec![fault], complaints);
            }
        }
        read
    }
}

/// Reads the file, if there is one, lays `overlays` over it, and says all that is wrong.
///
/// # Errors
///
/// Every complaint, in the order of the sections.
pub fn load(file: Option<&Path>, overlays: &[Overlay]) -> Result<Config, Vec<Complaint>> {
    let text = match file {
        None => String::new(),
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            let text = format!("cannot read the configuration file {}: {error}", file.display());
            vec![Complaint { origin: Origin::Whole, text }]
        })?,
    };
    parse(&text, file.map(Path::to_owned).unwrap_or_default(), overlays)
}

/// Reads what the file says, and says all that is wrong.
///
/// # Errors
///
/// Every complaint, in the order of the sections.
pub fn parse(text: &str, file: PathBuf, overlays: &[Overlay]) -> Result<Config, Vec<Complaint>> {
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = text[..error.span().map_or(0, |span| span.start).min(text.len())].matches('\n').count() + 1;
        vec![Complaint { origin: Origin::Line(file.clone(), line), text: error.message().trim().to_owned() }]
    })?;
    for overlay in overlays {
        let (section, key) = overlay.key;
        let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Some(section) = section.as_table_mut() {
            section.insert(key.to_owned(), overlay.value.clone());
        }
    }
    let spans = DeTable::parse(text).ok().map(Spanned::into_inner);
    let source = Source { file, text, spans, overlays };
    let mut complaints = Vec::new();
    for key in table.keys().filter(|key| !SECTIONS.contains(&key.as_str())) {
        let text = read::unknown(key, &SECTIONS);
        complaints.push(Complaint { origin: source.origin(std::slice::from_ref(key)), text });
    }
    let config = Config {
        node: source.section(&["node"], table.get("node"), &mut complaints),
        store: source.section(&["store"], table.get("store"), &mut complaints),
        ownership: source.section(&["ownership"], table.get("ownership"), &mut complaints),
        resize: source.section(&["resize"], table.get("resize"), &mut complaints),
        auth: source.section(&["auth"], table.get("auth"), &mut complaints),
        sinks: source.named("sinks", table.get("sinks"), &mut complaints),
        topics: source.named("topics", table.get("topics"), &mut complaints),
    };
    for (name, _) in table.get("topics").and_then(Value::as_table).into_iter().flatten() {
        if let Err(error) = duetime_core::TopicName::new(name) {
            let origin = source.origin(&["topics".to_owned(), name.clone()]);
            complaints.push(Complaint { origin, text: error.to_string() });
        }
    }
    if complaints.is_empty() {
        // The path a sentence begins with leads to its line.
        complaints.extend(config.contradictions().into_iter().map(|text| {
            let key = text.split(':').next().unwrap_or_default();
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            Complaint { origin: source.origin(&path), text }
        }));
    }
    if complaints.is_empty() { Ok(config) } else { Err(complaints) }
}
