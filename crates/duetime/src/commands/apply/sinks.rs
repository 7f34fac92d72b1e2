//! The sinks of a file: what they differ in from those of the node, and how they are put.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use duetime_client::{Client, NamedSink, NamedSinks};

use super::diff::{Action, Diff, Named, SettingDiff};
use crate::config::DeclaredSink;

/// What differs, sink by sink: those of the file, then the others that were put.
pub(super) fn differences(declared: &[DeclaredSink], present: NamedSinks) -> Vec<Diff> {
    let NamedSinks { sinks, by_api } = present;
    let mut present: BTreeMap<String, NamedSink> = sinks.into_iter().map(|sink| (sink.name.clone(), sink)).collect();
    let mut diffs: Vec<Diff> =
        declared.iter().map(|sink| compared(sink, present.remove(&sink.name).as_ref(), by_api)).collect();
    let others = present.into_values().filter(|sink| !is_of_file(sink));
    diffs.extend(others.map(|sink| Diff::new(Named::Sink(sink.name), Action::Keep)));
    diffs
}

fn is_of_file(sink: &NamedSink) -> bool {
    sink.origin == "file"
}

/// What the declaration of a sink differs in from the sink that is there.
fn compared(declared: &DeclaredSink, present: Option<&NamedSink>, by_api: bool) -> Diff {
    let diff = |action| Diff::new(Named::Sink(declared.name.clone()), action);
    if present.is_some_and(is_of_file) {
        return diff(Action::OfFile);
    }
    if !by_api {
        return diff(Action::LeftOut);
    }
    let wanted = match &declared.config {
        Ok(config) => config,
        Err(complaint) => return Diff { errors: vec![complaint.to_string()], ..diff(Action::Refused) },
    };
    // Without a version it could not be seen whether it is another by the time it is put.
    if present.is_some_and(|sink| sink.version.is_none()) {
        let name = &declared.name;
        let unread = format!(
            "the node cannot read its record, so nothing can be compared; replace it with `duetime sink put {name}` or \
             delete it with `duetime sink delete {name}`"
        );
        return Diff { errors: vec![unread], ..diff(Action::Refused) };
    }
    let now = present.and_then(|sink| sink.config.clone()).unwrap_or_default();
    let keys: BTreeSet<&String> = now.keys().chain(wanted.keys()).collect();
    let differing = keys.into_iter().filter(|key| now.get(*key) != wanted.get(*key));
    let changes: Vec<SettingDiff> = differing
        .map(|key| SettingDiff { setting: key.clone(), from: now.get(key).cloned(), to: wanted.get(key).cloned() })
        .collect();
    let (action, version) = match present {
        None => (Action::Create, Some(0)),
        Some(sink) if changes.is_empty() => (Action::None, sink.version),
        Some(sink) => (Action::Change, sink.version),
    };
    Diff { changes, whole: wanted.clone(), version, ..diff(action) }
}

/// Puts a sink, if it is still the one that the file was compared with; in a dry run the node checks it, and puts
/// nothing.
pub(super) async fn put(client: &Client, name: &str, diff: &Diff, dry_run: bool) -> anyhow::Result<()> {
    let put = if dry_run {
        match client.put_sink_dry_run(name, &diff.whole, diff.version).await {
            // With a token that may only look, it is shown what differs, and nothing is checked.
            Err(error) if error.problem().is_some_and(|problem| problem.code == "forbidden") => return Ok(()),
            put => put?,
        }
    } else {
        client.put_sink(name, &diff.whole, diff.version, true).await?
    };
    match put.problem {
        None => Ok(()),
        Some(problem) => bail!("it was put, and the node cannot use it: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sink_whose_record_cannot_be_read_is_not_overwritten() {
        let log = json!({"type": "log"}).as_object().unwrap().clone();
        let declared = [DeclaredSink { name: "hook".to_owned(), config: Ok(log) }];
        let action = |there: serde_json::Value| {
            let present = serde_json::from_value(json!({"by_api": true, "sinks": [there]})).unwrap();
            let diff = differences(&declared, present).remove(0);
            (diff.action, diff.errors.join(""))
        };
        let (refused, why) = action(json!({"name": "hook", "origin": "api", "problem": "not read"}));
        assert_eq!(refused, Action::Refused);
        assert!(why.contains("`duetime sink put hook`") && why.contains("`duetime sink delete hook`"), "{why}");
        let there = json!({"name": "hook", "origin": "api", "version": 7, "config": {"type": "log"}});
        assert_eq!(action(there), (Action::None, String::new()));
    }
}
