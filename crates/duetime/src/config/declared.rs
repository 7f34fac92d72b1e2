//! The topics of a file alone, each read by itself: one that is wrong keeps no other from being used.

use std::path::Path;

use duetime_core::{TopicConfig, TopicName};
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

/// What a file says of topics.
#[derive(Debug)]
pub struct Declared {
    /// Those that it names.
    pub topics: Vec<DeclaredTopic>,
    /// What the names begin with that its patterns are for, such as `[topics."orders-*"]`.
    beginnings: Vec<String>,
}

impl Declared {
    /// Whether a pattern is for this name: its first message makes the topic, or may.
    #[must_use]
    pub fn has_pattern_for(&self, name: &str) -> bool {
        self.beginnings.iter().any(|beginning| name.starts_with(beginning))
    }
}

/// The topics of a file.
///
/// # Errors
///
/// The file cannot be read, or declares no topics.
pub fn declared_topics(file: &Path) -> Result<Declared, Vec<Complaint>> {
    let lines = ConfigLines::read(file)?;
    let table = lines.table()?;
    lines.check_sections(&table)?;
    let Some(Value::Table(topics)) = table.get("topics") else {
        let text = format!("{} declares no topics; write sections [topics.NAME]", file.display());
        return Err(vec![Complaint { origin: Origin::Whole, text }]);
    };
    // What is made by its first message is not there before.
    let (patterns, named): (Vec<_>, Vec<_>) = topics.iter().partition(|(name, _)| is_pattern(name));
    let beginning = |name: &String| name.split('*').next().unwrap_or_default().to_owned();
    Ok(Declared {
        topics: named.into_iter().map(|(name, value)| declared(&lines, name, value)).collect(),
        beginnings: patterns.into_iter().map(|(name, _)| beginning(name)).collect(),
    })
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
    let senseless = config.faults().into_iter().map(|(key, fault)| (vec![key.to_owned()], fault));
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
