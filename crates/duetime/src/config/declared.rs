//! The topics and sinks of a file alone, each read by itself: one that is wrong keeps no other from being used.

use std::path::Path;

use duetime_core::{SinkRefusal, TopicConfig, TopicName};
use duetime_sinks::by_api::check_form;
use serde_json::Map;
use toml::{Table, Value};

use super::file::{Complaint, ConfigLines, Origin};
use super::first_message::is_pattern;
use super::read::{self, ConfigFault};

/// A topic as a file declares it.
#[derive(Debug)]
pub struct DeclaredTopic {
    /// Its name.
    pub name: String,
    /// The settings that are named.
    pub named: Vec<String>,
    /// All settings, or all that is wrong.
    pub config: Result<TopicConfig, Vec<Complaint>>,
}

/// A sink as a file declares it.
#[derive(Debug)]
pub struct DeclaredSink {
    /// Its name.
    pub name: String,
    /// Its settings as they are written, without any secret, or what is wrong with them where they are put by the API.
    pub config: Result<Map<String, serde_json::Value>, Complaint>,
}

/// What a file says of topics and sinks.
#[derive(Debug)]
pub struct Declared {
    /// The sinks that it names.
    pub sinks: Vec<DeclaredSink>,
    /// The topics that it names.
    pub topics: Vec<DeclaredTopic>,
    /// What the names begin with that its patterns are for, such as `[topics."orders-*"]`.
    beginnings: Vec<String>,
}

impl Declared {
    /// Whether it says anything of topics.
    #[must_use]
    pub fn has_topics(&self) -> bool {
        !self.topics.is_empty() || !self.beginnings.is_empty()
    }

    /// Whether a pattern is for this name: its first message makes the topic, or may.
    #[must_use]
    pub fn has_pattern_for(&self, name: &str) -> bool {
        self.beginnings.iter().any(|beginning| name.starts_with(beginning))
    }
}

/// The topics and sinks of a file.
///
/// # Errors
///
/// The file cannot be read, or declares neither.
pub fn read_declared(file: &Path) -> Result<Declared, Vec<Complaint>> {
    let lines = ConfigLines::read(file)?;
    let table = lines.table()?;
    lines.check_sections(&table)?;
    let section = |name: &str| table.get(name).and_then(Value::as_table);
    let (topics, sinks) = (section("topics"), section("sinks"));
    if topics.is_none() && sinks.is_none() {
        let shown = file.display();
        let text = format!("{shown} declares no topics and no sinks; write sections [topics.NAME] or [sinks.NAME]");
        return Err(vec![Complaint { origin: Origin::Whole, text }]);
    }
    // What is made by its first message is not there before.
    let (patterns, named): (Vec<_>, Vec<_>) = topics.into_iter().flatten().partition(|(name, _)| is_pattern(name));
    let beginning = |name: &String| name.split('*').next().unwrap_or_default().to_owned();
    Ok(Declared {
        sinks: sinks.into_iter().flatten().map(|(name, value)| declared_sink(&lines, name, value)).collect(),
        topics: named.into_iter().map(|(name, value)| declared(&lines, name, value)).collect(),
        beginnings: patterns.into_iter().map(|(name, _)| beginning(name)).collect(),
    })
}

fn declared_sink(lines: &ConfigLines, name: &str, value: &Value) -> DeclaredSink {
    let complaint = |key: Option<&str>, text: String| lines.complaint_at(&["sinks", name], key, text);
    let section: Option<Map<_, _>> = value.as_table().and_then(|table| table.clone().try_into().ok());
    let config = section.ok_or_else(|| complaint(None, format!("must be a section, [sinks.{name}]")));
    let config = config.and_then(|config| match check_form(&config) {
        Ok(()) => Ok(config),
        Err(SinkRefusal::Invalid { field, detail }) => {
            let key = field.as_deref().and_then(|field| field.split(['.', '[']).next());
            Err(complaint(key, detail))
        }
        Err(SinkRefusal::Unusable(detail)) => Err(complaint(None, detail)),
    });
    DeclaredSink { name: name.to_owned(), config }
}

fn declared(lines: &ConfigLines, name: &str, value: &Value) -> DeclaredTopic {
    let none = Table::new();
    let (table, mut faults) = match value {
        Value::Table(table) => (table, Vec::new()),
        _ => (&none, vec![(Vec::new(), format!("must be a section, [topics.{name}]"))] as Vec<ConfigFault>),
    };
    if let Err(error) = TopicName::new(name).and_then(|topic| topic.check_new()) {
        faults.push((Vec::new(), error.to_string()));
    }
    let read = read::section::<TopicConfig>(table);
    faults.extend(read.faults);
    let config = read.value.unwrap_or_default();
    let senseless = config.faults().into_iter().map(|fault| (vec![fault.settings[0].to_owned()], fault.text));
    let known: Vec<Vec<String>> = faults.iter().map(|(path, _)| path.clone()).collect();
    faults.extend(senseless.filter(|(path, _)| !known.contains(path)));
    let complaint = |(path, text): ConfigFault| {
        let path: Vec<&str> = ["topics", name].into_iter().chain(path.iter().map(String::as_str)).collect();
        lines.complaint(&path, text)
    };
    let complaints: Vec<Complaint> = faults.into_iter().map(complaint).collect();
    DeclaredTopic {
        name: name.to_owned(),
        named: table.keys().cloned().collect(),
        config: if complaints.is_empty() { Ok(config) } else { Err(complaints) },
    }
}
