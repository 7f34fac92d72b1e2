//! What a node differs in from a file, for people and for programs.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::commands::{output, settings};

/// What is to be done with a sink or a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    None,
    Create,
    Change,
    Delete,
    /// It is not in the file, or only a pattern is for it.
    Keep,
    /// A sink that the node has from its own file, which alone changes it.
    OfFile,
    /// A sink, and the node takes none by the API.
    LeftOut,
    /// What the file says of it is wrong.
    Refused,
}

/// What it is about.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Named {
    Sink(String),
    Topic(String),
}

#[derive(Debug, Serialize)]
pub(super) struct SettingDiff {
    pub(super) setting: String,
    /// Absent: its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<Value>,
}

#[derive(Debug, Serialize)]
pub(super) struct Diff {
    #[serde(flatten)]
    pub(super) of: Named,
    pub(super) action: Action,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<SettingDiff>,
    /// All settings of a sink that is put: it has no others afterwards.
    #[serde(skip)]
    pub(super) whole: Map<String, Value>,
    /// The version of the sink that the file was compared with; 0: there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<u64>,
    /// Messages in a topic that is to be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages: Option<u64>,
    /// Why nothing is done, or was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<String>,
}

impl Diff {
    pub(super) fn new(of: Named, action: Action) -> Self {
        Self { of, action, changes: Vec::new(), whole: Map::new(), version: None, messages: None, errors: Vec::new() }
    }

    pub(super) const fn is_difference(&self) -> bool {
        matches!(self.action, Action::Create | Action::Change | Action::Delete)
    }

    /// The sink that it is about, if it is one.
    pub(super) fn sink(&self) -> Option<String> {
        match &self.of {
            Named::Sink(name) => Some(name.clone()),
            Named::Topic(_) => None,
        }
    }

    /// The sink that a topic is given, or is to go on with in another way.
    pub(super) fn needs_sink(&self) -> Option<&str> {
        let given = self.changes.iter().find(|change| change.setting == "sink")?.to.as_ref()?;
        given.get("name")?.as_str()
    }

    /// What it is about, as people read it.
    pub(super) fn title(&self) -> String {
        match &self.of {
            Named::Sink(name) => format!("sink {name}"),
            Named::Topic(name) => name.clone(),
        }
    }

    pub(super) fn shown(&self) -> String {
        let title = self.title();
        let mut lines = vec![match (self.action, self.messages) {
            (Action::None, _) => format!("  {title} is as declared"),
            (Action::Create, _) => format!("+ {title}"),
            (Action::Change, _) => format!("~ {title}"),
            (Action::Delete, messages) => {
                format!("- {title}, with {}", output::count(messages.unwrap_or_default(), "message"))
            }
            (Action::Keep, _) => format!("  {title} is not named in the file and stays"),
            (Action::OfFile, _) => format!("  {title} is of the node's own file, which alone changes it"),
            (Action::LeftOut, _) => format!(
                "  {title} is left out, for the node takes no sinks by the API; to put it, set enabled = true in \
                 [sinks_by_api] of the file of each node"
            ),
            (Action::Refused, _) => format!("! {title}"),
        }];
        lines.extend(self.changes.iter().map(|change| {
            let (name, from, to) = self.texts(change);
            match self.action {
                Action::Create => format!("    {name}: {to}"),
                _ => format!("    {name}: {from} -> {to}"),
            }
        }));
        lines.extend(self.errors.iter().map(|error| format!("    {error}")));
        lines.join("\n")
    }

    /// A setting and its two values, as `duetime topic get` and `duetime sink show` have them.
    fn texts(&self, SettingDiff { setting, from, to }: &SettingDiff) -> (String, String, String) {
        let of_sink = |value: &Option<Value>| match value {
            None => "default".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        let of_topic = |value: &Option<Value>| settings::value_of(setting, value.as_ref());
        match self.of {
            Named::Sink(_) => (setting.clone(), of_sink(from), of_sink(to)),
            Named::Topic(_) => (setting.replace('_', " "), of_topic(from), of_topic(to)),
        }
    }
}
