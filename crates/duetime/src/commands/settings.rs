//! The settings of a topic as options of a command: one option for each declared setting.

use anyhow::{Context as _, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use duetime_client::Topic;
use duetime_core::setting::{Kind, Setting};
use duetime_core::{ShardCount, TopicConfig, units};
use serde_json::{Map, Value};

/// Where the messages of a topic without a sink go.
pub const CLAIMED: &str = "consumers claim";

const SINK: &str = "sink";
const SINK_SETTING: &str = "sink-setting";

/// An option of the command line and the setting that it sets.
struct SettingOption {
    name: String,
    setting: &'static Setting,
    /// The object that holds the setting, where one does.
    within: Option<&'static Setting>,
}

impl SettingOption {
    fn of(setting: &'static Setting, within: Option<&'static Setting>) -> Self {
        let name = match (setting.option, within) {
            (Some(option), _) => option.to_owned(),
            (None, Some(object)) => format!("{}-{}", object.name, setting.name),
            (None, None) => setting.name.to_owned(),
        };
        Self { name: name.replace('_', "-"), setting, within }
    }

    /// Every option, in the order of the settings.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for setting in TopicConfig::SETTINGS {
            match setting.kind.inner() {
                [] => all.push(Self::of(setting, None)),
                inner => all.extend(inner.iter().map(|one| Self::of(one, Some(setting)))),
            }
        }
        all
    }

    /// True if `none` takes the setting, or the object that holds it, back to its absence.
    fn takes_none(&self) -> bool {
        let outer = self.within.unwrap_or(self.setting);
        matches!(outer.kind, Kind::Maybe(_)) && self.required().is_none()
    }

    /// The option without which this one means nothing: the first one of an object that may be absent.
    fn required(&self) -> Option<String> {
        let within = self.within.filter(|object| matches!(object.kind, Kind::Maybe(_)))?;
        let first = Self::of(&within.kind.inner()[0], Some(within));
        (first.name != self.name).then_some(first.name)
    }

    fn arg(&self) -> Arg {
        let value = match self.setting.kind.present() {
            Kind::Duration => "DURATION",
            Kind::Durations(_) => "DURATION,…",
            Kind::Size => "SIZE",
            Kind::Count(..) => "N",
            Kind::Number(..) => "NUMBER",
            Kind::Flag => "true|false",
            Kind::Word(_) => "WORD",
            Kind::Shards => "N|auto",
            Kind::Sink | Kind::Topic | Kind::Object(_) | Kind::Maybe(_) => "NAME",
        };
        let value = if self.takes_none() { format!("{value}|none") } else { value.to_owned() };
        let help = self.setting.summary().replace('`', "");
        let arg = Arg::new(self.name.clone()).long(self.name.clone()).value_name(value).help(help);
        let arg = match self.setting.kind.present() {
            Kind::Flag => arg.value_parser(["true", "false"]),
            Kind::Word(words) => arg.value_parser(PossibleValuesParser::new(words.iter().copied())),
            _ => arg,
        };
        match self.required() {
            Some(first) => arg.requires(first),
            None => arg,
        }
    }

    fn read(&self, text: &str) -> anyhow::Result<Value> {
        let name = &self.name;
        Ok(match self.setting.kind.present() {
            Kind::Flag => (text == "true").into(),
            Kind::Count(..) => text.parse::<u64>().with_context(|| format!("--{name} is a whole number"))?.into(),
            Kind::Number(..) => text.parse::<f64>().with_context(|| format!("--{name} is a number"))?.into(),
            Kind::Shards | Kind::Size => text.parse::<u64>().map_or_else(|_| text.into(), Value::from),
            Kind::Durations(_) => text.split(',').map(str::trim).filter(|one| !one.is_empty()).collect(),
            Kind::Duration | Kind::Word(_) | Kind::Sink | Kind::Topic | Kind::Object(_) | Kind::Maybe(_) => text.into(),
        })
    }

    /// Puts what was given into the change.
    fn set(&self, text: &str, change: &mut Map<String, Value>) -> anyhow::Result<()> {
        let value = if self.takes_none() && text == "none" { Value::Null } else { self.read(text)? };
        match self.within {
            Some(object) if !value.is_null() => {
                let inner = change.entry(object.name).or_insert_with(|| Map::new().into());
                inner[self.setting.name] = value;
            }
            Some(object) => {
                change.insert(object.name.to_owned(), Value::Null);
            }
            None => {
                change.insert(self.setting.name.to_owned(), value);
            }
        }
        Ok(())
    }
}

/// Settings of a topic that were given, as the change of a topic that the node reads.
#[derive(Debug)]
pub struct Settings(pub Map<String, Value>);

impl Settings {
    /// Makes it these settings, changed as was given.
    pub fn add_to(&mut self, mut whole: Map<String, Value>) {
        for (name, value) in std::mem::take(&mut self.0) {
            match (whole.get_mut(&name).and_then(Value::as_object_mut), value) {
                // A sink is given as a whole, of other objects only what is named.
                (Some(object), Value::Object(inner)) if name != SINK => object.extend(inner),
                (_, value) => drop(whole.insert(name, value)),
            }
        }
        self.0 = whole;
    }
}

/// The settings of a topic for another one, which is not paused.
pub fn copy_of(topic: &Topic) -> anyhow::Result<Map<String, Value>> {
    let Value::Object(mut settings) = serde_json::to_value(&topic.config)? else {
        anyhow::bail!("the settings of a topic are no object");
    };
    settings.remove("paused");
    Ok(settings)
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        let options = SettingOption::all();
        let command = options.iter().fold(command, |command, option| command.arg(option.arg()));
        command.arg(
            Arg::new(SINK_SETTING)
                .long(SINK_SETTING)
                .value_name("KEY=VALUE")
                .requires(SINK)
                .action(ArgAction::Append)
                .help("A setting of the sink for this topic, such as path=/orders. May be repeated"),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let refuse =
            |error: anyhow::Error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error}\n"));
        let mut change = Map::new();
        for option in SettingOption::all() {
            if let Some(text) = matches.get_one::<String>(&option.name) {
                option.set(text, &mut change).map_err(refuse)?;
            }
        }
        for (_, value) in &mut change {
            // A list that is given alone stands for its object.
            if let Some(object) = value.as_object()
                && object.len() == 1
                && let Some(list) = object.values().find(|value| value.is_array())
            {
                *value = list.clone();
            }
        }
        if let Some(name) = matches.get_one::<String>(SINK) {
            let given = matches.get_many::<String>(SINK_SETTING).into_iter().flatten();
            change.insert(SINK.to_owned(), sink(name, given).map_err(refuse)?);
        }
        Ok(Self(change))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn sink<'a>(name: &str, given: impl Iterator<Item = &'a String>) -> anyhow::Result<Value> {
    let mut sink = Map::from_iter([("name".to_owned(), name.into())]);
    for setting in given {
        let (key, value) = setting.split_once('=').context("--sink-setting is written KEY=VALUE")?;
        sink.insert(key.to_owned(), value.into());
    }
    if name == "none" {
        ensure!(sink.len() == 1, "--sink none has no settings; leave --sink-setting out");
        return Ok(Value::Null);
    }
    Ok(sink.into())
}

/// A setting's value for people.
fn shown(kind: &Kind, value: Option<&Value>) -> String {
    let Some(value) = value else {
        let absent = match kind {
            Kind::Flag => "false",
            Kind::Duration => "0s",
            Kind::Maybe(Kind::Sink) => CLAIMED,
            _ => "none",
        };
        return absent.to_owned();
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match kind.present() {
        Kind::Durations(_) => value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" "),
        Kind::Size => value.as_u64().map_or_else(|| text(value), units::show_size),
        Kind::Object(inner) => {
            let one = |setting: &Setting| {
                format!("{} {}", setting.name.replace('_', " "), shown(&setting.kind, value.get(setting.name)))
            };
            inner.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Kind::Sink => {
            let settings = value.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
            let name = value.get("name").map(text).unwrap_or_default();
            settings.fold(name, |all, (key, value)| format!("{all} {key}={}", text(value)))
        }
        _ => text(value),
    }
}

/// The value of the setting `name` for people.
pub fn value_of(name: &str, value: Option<&Value>) -> String {
    let setting = TopicConfig::SETTINGS.iter().find(|setting| setting.name == name);
    setting.map_or_else(String::new, |setting| shown(&setting.kind, value))
}

/// Every setting of a topic with its value for people.
pub fn rows(topic: &Topic) -> anyhow::Result<Vec<(String, String)>> {
    let config = serde_json::to_value(&topic.config)?;
    let row = |setting: &Setting| {
        let value = match (setting.kind, topic.config.shards) {
            (Kind::Shards, ShardCount::Auto) => format!("{} (auto)", topic.shard_count),
            (Kind::Shards, ShardCount::Fixed(_)) => topic.shard_count.to_string(),
            (kind, _) => shown(&kind, config.get(setting.name)),
        };
        (setting.name.replace('_', " "), value)
    };
    Ok(TopicConfig::SETTINGS.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(words: &[&str]) -> Result<Value, String> {
        let command = Settings::augment_args(Command::new("set").no_binary_name(true));
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        Settings::from_arg_matches(&matches).map(|settings| settings.0.into()).map_err(|error| error.to_string())
    }

    #[test]
    fn options_become_the_change_that_a_node_reads() {
        let words = "--shards auto --visibility-timeout 1m --max-attempts 3 --retry-factor 1.5 --rate-limit 100 \
                     --burst 5 --max-bytes 10GiB --paused true --sink hook --sink-setting path=/x=y";
        let change = json!({
            "shards": "auto", "visibility_timeout": "1m", "retry": {"max_attempts": 3, "factor": 1.5},
            "rate_limit": {"per_second": 100.0, "burst": 5}, "max_bytes": "10GiB", "paused": true,
            "sink": {"name": "hook", "path": "/x=y"},
        });
        assert_eq!(read(&words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>()), Ok(change));
        assert_eq!(read(&["--retry-waits", "2m, 10m,1h"]), Ok(json!({"retry": ["2m", "10m", "1h"]})));
        let more = json!({"retry": {"waits": ["2m"], "max_attempts": 5}});
        assert_eq!(read(&["--retry-waits", "2m", "--max-attempts", "5"]), Ok(more));
        let none = json!({"sink": null, "rate_limit": null, "max_messages": null});
        assert_eq!(read(&["--sink", "none", "--rate-limit", "none", "--max-messages", "none"]), Ok(none));
    }

    #[test]
    fn a_copy_of_settings_is_changed_by_what_is_named() {
        let whole =
            json!({"retry": {"max_attempts": 5, "factor": 2.0}, "sink": {"name": "a", "path": "/x"}, "smear": "1s"});
        let Value::Object(whole) = whole else { unreachable!() };
        let given = json!({"retry": {"max_attempts": 9}, "sink": {"name": "b"}, "delay": "1m", "smear": null});
        let Value::Object(given) = given else { unreachable!() };
        let mut settings = Settings(given);
        settings.add_to(whole);
        let made = json!({
            "retry": {"max_attempts": 9, "factor": 2.0}, "sink": {"name": "b"}, "delay": "1m", "smear": null,
        });
        assert_eq!(Value::Object(settings.0), made);
    }

    #[test]
    fn what_is_no_value_of_a_setting_is_refused_by_its_option() {
        for (words, said) in [
            (&["--max-attempts", "few"][..], "--max-attempts is a whole number"),
            (&["--rate-limit", "fast"], "--rate-limit is a number"),
            (&["--burst", "5"], "--rate-limit"),
            (&["--delivery", "maybe"], "at-least-once"),
            (&["--sink", "none", "--sink-setting", "a=b"], "leave --sink-setting out"),
            (&["--sink", "hook", "--sink-setting", "a"], "KEY=VALUE"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
