//! `duetime sink list|show|put|delete`

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use duetime_client::NamedSink;
use serde_json::{Map, Value};
use toml::Table;

use super::output;
use crate::connection::NodeArgs;

/// A sink by its name.
#[derive(Debug, Args)]
pub struct NamedSinkArgs {
    /// The sink, as topics name it.
    sink: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// A sink to be put.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// The sink, as topics will name it.
    sink: String,
    /// A file with its settings: TOML, the lines of a section [sinks.NAME] or the section itself, or a JSON object; `-`: what
    /// is piped in. Secrets are named: { file = "NAME" } in the folder of secrets of the nodes, or
    /// { env = "DUETIME_SINK_NAME" }.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Only if it is this version of it; 0: only if there is none.
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    /// Put it although its target may not answer: the node does not connect to it before.
    #[arg(long)]
    no_try: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// A sink to be deleted.
#[derive(Debug, Args)]
pub struct DeleteSinkArgs {
    /// The sink, as topics name it.
    sink: String,
    /// Only if it is this version of it.
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Lists all; false: the node cannot use one.
pub async fn list(connection: NodeArgs) -> anyhow::Result<bool> {
    let all = connection.client()?.named_sinks().await?;
    if connection.json {
        output::json(&all)?;
    } else {
        let rows = all.sinks.iter().map(|sink| {
            let version = sink.version.map_or_else(|| "-".to_owned(), |version| version.to_string());
            let kind = sink.kind.clone().unwrap_or_else(|| "-".to_owned());
            let problem = sink.problem.clone().unwrap_or_default();
            vec![sink.name.clone(), kind, sink.origin.clone(), version, sink.topics.to_string(), problem]
        });
        output::table(&["sink", "type", "from", "version", "topics", ""], rows.collect(), "there are no sinks")?;
    }
    Ok(all.sinks.iter().all(|sink| sink.problem.is_none()))
}

/// Shows one; false: the node cannot use it.
pub async fn show(NamedSinkArgs { sink, connection }: NamedSinkArgs) -> anyhow::Result<bool> {
    shown(&connection, &connection.client()?.named_sink(&sink).await?)
}

/// Puts one; false: the node cannot use it.
pub async fn put(args: PutArgs) -> anyhow::Result<bool> {
    let PutArgs { sink, file, if_version, no_try, connection } = args;
    let config = read(&file, &sink)?;
    shown(&connection, &connection.client()?.put_sink(&sink, &config, if_version, !no_try).await?)
}

/// Deletes one.
pub async fn delete(DeleteSinkArgs { sink, if_version, connection }: DeleteSinkArgs) -> anyhow::Result<bool> {
    let outcome = connection.client()?.delete_sink(&sink, if_version).await?;
    if connection.json {
        output::json(&outcome)?
    } else {
        output::line(&format!("sink {sink} is deleted"))?
    }
    Ok(true)
}

fn shown(connection: &NodeArgs, sink: &NamedSink) -> anyhow::Result<bool> {
    if connection.json {
        output::json(sink)?;
        return Ok(sink.problem.is_none());
    }
    let dash = || "-".to_owned();
    let by = sink.changed_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let mut rows = vec![
        ("sink", sink.name.clone()),
        ("type", sink.kind.clone().unwrap_or_else(dash)),
        ("from", if sink.origin == "file" { "the file of the node".to_owned() } else { "the API".to_owned() }),
        ("version", sink.version.map_or_else(dash, |version| version.to_string())),
        ("changed", sink.changed_at.map_or_else(dash, |at| format!("{}{by}", output::moment(at)))),
        ("topics", sink.topics.to_string()),
        ("state", sink.problem.as_ref().map_or_else(|| "ready".to_owned(), |why| format!("cannot be used: {why}"))),
    ];
    for (key, value) in sink.config.iter().flatten().filter(|(key, _)| *key != "type") {
        rows.push((key.as_str(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    }
    output::pairs(rows)?;
    Ok(sink.problem.is_none())
}

/// The settings in a file: JSON, or TOML with or without the section around it.
fn read(file: &Path, sink: &str) -> anyhow::Result<Map<String, Value>> {
    let shown = file.display();
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("reading what is piped in")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("reading {shown}"))?
    };
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(&text).with_context(|| format!("{shown} is no JSON object"));
    }
    let mut table: Table = text.parse().with_context(|| format!("{shown} is neither TOML nor a JSON object"))?;
    let settings = match table.remove("sinks") {
        None => Some(toml::Value::Table(table)),
        Some(mut sinks) => sinks.as_table_mut().and_then(|sinks| sinks.remove(sink)),
    };
    let read = settings.and_then(|settings| settings.try_into().ok());
    read.with_context(|| format!("{shown} has no section [sinks.{sink}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_a_section_from_its_lines_and_from_json() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sink");
        for text in [
            "[sinks.shop]\ntype = \"http\"\nurl = \"https://a.example\"\nheaders = { x = { file = \"token\" } }\n[sinks.b]\ntype = \"log\"",
            "type = \"http\"\nurl = \"https://a.example\"\n[headers]\nx = { file = \"token\" }",
            "\n{\"type\": \"http\", \"url\": \"https://a.example\", \"headers\": {\"x\": {\"file\": \"token\"}}}",
        ] {
            std::fs::write(&file, text).unwrap();
            let wanted =
                serde_json::json!({"type": "http", "url": "https://a.example", "headers": {"x": {"file": "token"}}});
            assert_eq!(Value::Object(read(&file, "shop").unwrap()), wanted, "{text}");
        }
        std::fs::write(&file, "[sinks.b]\ntype = \"log\"").unwrap();
        assert!(read(&file, "shop").unwrap_err().to_string().ends_with("has no section [sinks.shop]"));
        std::fs::write(&file, "neither").unwrap();
        assert!(read(&file, "shop").unwrap_err().to_string().ends_with("is neither TOML nor a JSON object"));
    }
}
