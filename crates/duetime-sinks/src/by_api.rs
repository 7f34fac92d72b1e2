//! What the operator allows of sinks that are put by the API: where their secrets may be, and which targets they may have.
//!
//! Upstream: `node_sinks`. Settings that came by the API are made into those of a file here: each key of each type stands
//! in [`KINDS`] with what may be in it, and one that does not is refused. So a setting that is added to a type is not open
//! to the API before somebody decides what it may hold.

use std::path::PathBuf;

use duetime_core::SinkRefusal;
use duetime_core::suggest::unknown;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::allowed_target::{Address, AllowedTarget, addresses};
use crate::registry::SinkConfig;

/// What the names of variables begin with that sinks put by the API may be given.
pub const VARIABLE_PREFIX: &str = "DUETIME_SINK_";
/// Stands among the targets for the sink `log`, which has none.
const LOG: &str = "log";
/// The section, as sentences name it.
const SECTION: &str = "[sinks_by_api]";

/// The section `[sinks_by_api]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SinksByApiConfig {
    /// Whether sinks may be put by the API. Default `false`.
    ///
    /// Set it at every node, with the same secrets: a node without it delivers nothing through them.
    pub enabled: bool,
    /// The folder of files that they may name as secrets and certificates, such as `/etc/duetime/secrets`. Default:
    /// none. Variables may be named whose names begin with `DUETIME_SINK_`.
    ///
    /// Have nothing else in it: who puts a sink can have any of them sent to any of the `targets`.
    pub secrets: Option<PathBuf>,
    /// The targets that they may have: `https://hooks.example`, `https://*.shop.example:8443`, `amqps://mq.example`,
    /// `nats://*:4222`, `kafka://kafka.example:9092`, `log`. Without a port it is that of the scheme, and `:*` is any.
    /// Default: none.
    pub targets: Vec<String>,
    /// Addresses, ranges and host names that webhooks among them may reach although they are not public, as `allow` of a
    /// webhook in the file. Default: none.
    pub allow: Vec<String>,
}

/// What may be at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// Anything that its type takes: it is neither secret nor read from elsewhere.
    Plain,
    /// A reference to a secret.
    Secret,
    /// A list of them.
    Secrets,
    /// An object of them.
    SecretMap,
    /// The name of a file in the folder of secrets.
    File,
    /// Where the target is, without anything secret, or a reference to such a text.
    Address,
    /// A list of patterns of targets, with paths.
    Patterns,
    /// A user and how it logs in, with a reference to its password.
    Login,
}
use Holds::{Address as At, File, Login, Patterns, Plain, Secret, SecretMap, Secrets};

/// The keys of each type. Left out are those that only the operator may set: `allow` of a webhook, `properties` of Kafka,
/// `in_place`.
const KINDS: &[(&str, &[(&str, Holds)])] = &[
    (LOG, &[("count_only", Plain), ("payload_bytes", Plain)]),
    (
        "http",
        &[
            ("url", At),
            ("targets", Patterns),
            ("methods", Plain),
            ("signing_secrets", Secrets),
            ("headers", SecretMap),
            ("content_type", Plain),
            ("header_prefix", Plain),
            ("timeout", Plain),
            ("connect_timeout", Plain),
            ("batch", Plain),
            ("concurrency", Plain),
            ("per_second", Plain),
            ("only", Plain),
            ("ca_file", File),
            ("max_response", Plain),
            ("max_probe_wait", Plain),
        ],
    ),
    (
        "rabbitmq",
        &[
            ("url", At),
            ("timeout", Plain),
            ("connect_timeout", Plain),
            ("channels", Plain),
            ("batch", Plain),
            ("ca_file", File),
            ("max_probe_wait", Plain),
        ],
    ),
    (
        "nats",
        &[
            ("url", At),
            ("user", Plain),
            ("password", Secret),
            ("token", Secret),
            ("credentials_file", File),
            ("timeout", Plain),
            ("connect_timeout", Plain),
            ("ca_file", File),
            ("max_probe_wait", Plain),
        ],
    ),
    (
        "kafka",
        &[
            ("brokers", At),
            ("tls", Plain),
            ("ca_file", File),
            ("sasl", Login),
            ("compression", Plain),
            ("timeout", Plain),
            ("connect_timeout", Plain),
            ("max_message", Plain),
            ("max_probe_wait", Plain),
        ],
    ),
    (
        "redis-stream",
        &[("url", At), ("timeout", Plain), ("connect_timeout", Plain), ("ca_file", File), ("max_probe_wait", Plain)],
    ),
];

fn invalid(field: impl Into<String>, detail: impl std::fmt::Display) -> SinkRefusal {
    let field = field.into();
    SinkRefusal::Invalid { detail: format!("{field}: {detail}"), field: Some(field) }
}

/// The type of a sink that was put, as far as its settings say.
#[must_use]
pub fn kind_of(config: &Map<String, Value>) -> Option<&str> {
    config.get("type")?.as_str()
}

/// The type of settings that came by the API, and the settings as those of a file: with what they refer to, by the `rules`
/// of a node; without these, as they are.
fn settings<'a>(
    rules: Option<&SinksByApiConfig>,
    config: &'a Map<String, Value>,
) -> Result<(&'a str, Map<String, Value>), SinkRefusal> {
    let Some(kind) = kind_of(config) else {
        let types = SinkConfig::TYPES.join(", ");
        return Err(invalid("type", format!("name the type of the sink, one of {types}")));
    };
    let Some((_, keys)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return Err(invalid("type", unknown("type", kind, SinkConfig::TYPES)));
    };
    let mut settings = Map::new();
    for (key, value) in config.iter().filter(|(key, _)| *key != "type") {
        let Some((_, holds)) = keys.iter().find(|(known, _)| known == key) else {
            let known: Vec<&str> = keys.iter().map(|(known, _)| *known).collect();
            let text = unknown("setting", key, &known);
            return Err(invalid(key, format!("{text}; others of the type {kind:?} are set in the node's file alone")));
        };
        settings.insert(key.clone(), resolved(rules, kind, key, *holds, value)?);
    }
    if let Some((key, _)) = keys.iter().find(|(key, holds)| *holds == At && !settings.contains_key(*key)) {
        return Err(invalid(*key, "is missing; say where the target is"));
    }
    Ok((kind, settings))
}

/// Checks what needs no node: each key is one of its type, and nothing secret is written out. What passes may be shown.
///
/// # Errors
///
/// [`SinkRefusal::Invalid`], as a node says it.
pub fn check_form(config: &Map<String, Value>) -> Result<(), SinkRefusal> {
    settings(None, config).map(drop)
}

fn resolved(
    rules: Option<&SinksByApiConfig>,
    kind: &str,
    key: &str,
    holds: Holds,
    value: &Value,
) -> Result<Value, SinkRefusal> {
    match (holds, value) {
        (Plain, _) => Ok(value.clone()),
        (Secret, _) => reference(rules, key, value),
        (Secrets, Value::Array(list)) => {
            let each = list.iter().enumerate().map(|(at, one)| reference(rules, &format!("{key}[{at}]"), one));
            each.collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        (Secrets, _) => Err(invalid(key, "write a list of secrets")),
        (SecretMap, Value::Object(map)) => {
            let each = map.iter().map(|(name, one)| {
                let resolved = reference(rules, &format!("{key}.{name}"), one)?;
                Ok((name.clone(), resolved))
            });
            each.collect::<Result<Map<_, _>, SinkRefusal>>().map(Value::Object)
        }
        (SecretMap, _) => Err(invalid(key, "write an object of names and secrets")),
        (File, Value::String(name)) => file(rules, name).map(Value::String).map_err(|detail| invalid(key, detail)),
        (File, _) => Err(invalid(key, "write the name of a file in the folder of secrets")),
        (Login, Value::Object(login)) => {
            let each = login.iter().map(|(name, one)| {
                let is_secret = !matches!(name.as_str(), "mechanism" | "user");
                let resolved = if is_secret { reference(rules, &format!("{key}.{name}"), one)? } else { one.clone() };
                Ok((name.clone(), resolved))
            });
            each.collect::<Result<Map<_, _>, SinkRefusal>>().map(Value::Object)
        }
        (Login, _) => Err(invalid(key, "write an object with mechanism, user and password")),
        (Patterns, Value::Array(list)) => {
            let mut each = list.iter().enumerate();
            each.try_for_each(|(at, one)| check_pattern(rules, &format!("{key}[{at}]"), one))?;
            Ok(value.clone())
        }
        (Patterns, _) => Err(invalid(key, "write a list of patterns, as [\"https://*.shop.example/hooks/*\"]")),
        (At, Value::String(text)) => {
            let found = addresses(kind, text, false).map_err(|detail| invalid(key, detail))?;
            rules.map_or(Ok(()), |rules| rules.check_targets(key, &found, true))?;
            Ok(value.clone())
        }
        // Anything may look like the name of a broker, and names are shown: a file could be read that way.
        (At, _) if kind == "kafka" => Err(invalid(key, "write the brokers as a text: nothing in it is secret")),
        (At, _) => {
            let reference = reference(rules, key, value)?;
            let Some(rules) = rules else { return Ok(reference) };
            let text = duetime_settings::SecretSource::deserialize(&reference)
                .map_err(|error| error.to_string())
                .and_then(|source| source.read())
                .map_err(|detail| invalid(key, detail))?;
            let found = addresses(kind, &text, true).map_err(|detail| invalid(key, detail))?;
            rules.check_targets(key, &found, false)?;
            // What was checked is what is used, whatever the file holds a moment later.
            Ok(json!(*text))
        }
    }
}

/// A reference as the file has it, if it leads to where it may.
fn reference(rules: Option<&SinksByApiConfig>, key: &str, value: &Value) -> Result<Value, SinkRefusal> {
    let place = value.as_object().filter(|places| places.len() == 1).and_then(|places| places.iter().next());
    let Some((place, Value::String(name))) = place else {
        let help = format!(
            "a secret is not sent itself; name where the nodes have it: {{\"file\": \"NAME\"}} in the folder of \
             secrets, or {{\"env\": \"{VARIABLE_PREFIX}NAME\"}}"
        );
        return Err(invalid(key, help));
    };
    match place.as_str() {
        "file" => file(rules, name).map(|path| json!({ "file": path })).map_err(|detail| invalid(key, detail)),
        "env" if name.starts_with(VARIABLE_PREFIX) => Ok(value.clone()),
        "env" => Err(invalid(key, format!("the name of the variable must begin with {VARIABLE_PREFIX}"))),
        _ => Err(invalid(key, format!("{place:?} is no place of a secret; write \"file\" or \"env\""))),
    }
}

/// Refuses a pattern that allows more than the operator does.
fn check_pattern(rules: Option<&SinksByApiConfig>, key: &str, pattern: &Value) -> Result<(), SinkRefusal> {
    let text = pattern.as_str().ok_or_else(|| invalid(key, "write a pattern as a text"))?;
    let help = "is no pattern of URLs; write it as \"https://*.shop.example/hooks/*\", without a user or a password";
    let (asked, _) = AllowedTarget::read_with_path(text).map_err(|_| invalid(key, help))?;
    if rules.is_none_or(|rules| rules.allowed().any(|target| target.covers(&asked))) {
        return Ok(());
    }
    let detail = format!(
        "{text:?} is more than the operator allows; name one that lies within an entry of targets of {SECTION}, or \
         add it there"
    );
    Err(invalid(key, detail))
}

/// A file of the folder of secrets; without a node, its name.
fn file(rules: Option<&SinksByApiConfig>, name: &str) -> Result<String, String> {
    rules.map_or_else(|| Ok(name.to_owned()), |rules| rules.file(name))
}

impl SinksByApiConfig {
    /// What makes no sense, each with its key.
    #[must_use]
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let targets = self.targets.iter().filter(|target| *target != LOG);
        faults.extend(targets.filter_map(|target| Some(("targets", AllowedTarget::read(target).err()?))));
        if self.enabled && self.targets.is_empty() {
            faults.push((
                "targets",
                "no sink can be put without one; name the targets, as \"https://*.shop.example\"".to_owned(),
            ));
        }
        #[cfg(feature = "http")]
        if let Err(fault) = crate::http::guard::Guard::new(&self.allow, None) {
            faults.push(("allow", fault.text));
        }
        if self.secrets.as_ref().is_some_and(|folder| !folder.is_absolute()) {
            faults.push(("secrets", "write the whole path of the folder, as \"/etc/duetime/secrets\"".to_owned()));
        }
        faults
    }

    /// Settings that came by the API as those of a file: references lead to files in the folder and to variables that may be
    /// named, and the target is one that is allowed. Reads the files that tell where the target is.
    ///
    /// # Errors
    ///
    /// [`SinkRefusal::Invalid`] names the setting, and nothing that a reference leads to.
    pub fn read(&self, config: &Map<String, Value>) -> Result<SinkConfig, SinkRefusal> {
        let (kind, mut settings) = settings(Some(self), config)?;
        if kind == LOG && !self.targets.iter().any(|target| target == LOG) {
            return Err(invalid(
                "type",
                format!("the operator allows no sink that is a log; add \"log\" to targets of {SECTION}"),
            ));
        }
        if kind == "http" && !self.allow.is_empty() {
            settings.insert("allow".to_owned(), json!(self.allow));
        }
        let unbuilt = || invalid("type", format!("this program was built without sinks of type {kind:?}"));
        let mut track = serde_path_to_error::Track::new();
        let settings = Value::Object(settings);
        let read = SinkConfig::read(kind, serde_path_to_error::Deserializer::new(&settings, &mut track));
        read.ok_or_else(unbuilt)?.map_err(|error| {
            let path = track.path().to_string();
            if path == "." {
                SinkRefusal::Invalid { field: None, detail: error.to_string() }
            } else {
                invalid(path, error)
            }
        })
    }

    fn allowed(&self) -> impl Iterator<Item = AllowedTarget> {
        self.targets.iter().filter_map(|target| AllowedTarget::read(target).ok())
    }

    /// Refuses a target that is not allowed; where it is not `shown`, it comes from a file that may be a secret of another.
    fn check_targets(&self, key: &str, found: &[Address], shown: bool) -> Result<(), SinkRefusal> {
        let is_allowed = |address: &Address| self.allowed().any(|target| target.has(address));
        let Some(address) = found.iter().find(|address| !is_allowed(address)) else {
            return Ok(());
        };
        let at = if shown { format!("at {address}") } else { "where it leads".to_owned() };
        let detail = format!("the operator allows no target {at}; add it to targets of {SECTION}, or name another");
        Err(invalid(key, detail))
    }

    /// A file of the folder of secrets, wherever in that folder links lead to it. By its name there: some are read again
    /// with each connection, when the links may lead to those that took their place.
    fn file(&self, name: &str) -> Result<String, String> {
        let Some(folder) = &self.secrets else {
            return Err(format!("this node has no folder of secrets; set secrets of {SECTION}"));
        };
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
            return Err("write the name of a file alone, without a folder and without a dot before it".to_owned());
        }
        let missing = |_| format!("this node has no file {name:?} in its folder of secrets");
        let path = folder.join(name);
        let (root, file) = (folder.canonicalize().map_err(missing)?, path.canonicalize().map_err(missing)?);
        let is_inside = file.starts_with(&root) && file != root;
        let found = path.to_str().filter(|_| is_inside && file.is_file());
        found.map(str::to_owned).ok_or_else(|| format!("{name:?} leads out of the folder of secrets, or is no file"))
    }
}

#[cfg(test)]
mod tests;
