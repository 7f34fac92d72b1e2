//! `duetime context add|use|list|remove`

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use duetime_client::Client;
use serde_json::json;
use toml::{Table, Value};

use super::output;
use crate::contexts::Contexts;

/// Nodes under names of your own.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Keeps the address of a node, and where its token is, under a name.
    Add(AddArgs),
    /// Uses a context for all commands that name no node.
    Use {
        /// The context.
        #[arg(required_unless_present = "none", conflicts_with = "none")]
        name: Option<String>,
        /// Use none from now on.
        #[arg(long)]
        none: bool,
    },
    /// Lists the contexts.
    List {
        /// Print JSON for programs instead of tables for people.
        #[arg(long)]
        json: bool,
    },
    /// Forgets a context.
    Remove {
        /// The context.
        name: String,
    },
}

/// A node, and where its token is.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The name.
    name: String,
    /// The node.
    #[arg(long, value_name = "URL")]
    node: String,
    /// The token is in this file.
    #[arg(long, value_name = "FILE", group = "token")]
    token_file: Option<PathBuf>,
    /// The token is in this variable.
    #[arg(long, value_name = "NAME", group = "token")]
    token_env: Option<String>,
    /// The token itself, which is then kept in clear.
    #[arg(long, value_name = "TOKEN", group = "token")]
    token_in_clear: Option<String>,
    /// Change the context of this name that is there.
    #[arg(long)]
    replace: bool,
}

/// Runs one.
pub fn run(command: ContextCommand) -> anyhow::Result<bool> {
    let mut contexts = Contexts::read()?;
    match command {
        ContextCommand::Add(args) => add(&mut contexts, args)?,
        ContextCommand::Use { name, .. } => contexts.set_current(name.as_deref())?,
        ContextCommand::List { json } => list(&contexts, json)?,
        ContextCommand::Remove { name } => contexts.remove(&name)?,
    }
    Ok(true)
}

fn add(contexts: &mut Contexts, args: AddArgs) -> anyhow::Result<()> {
    let AddArgs { name, node, token_file, token_env, token_in_clear, replace } = args;
    ensure!(!name.trim().is_empty() && !name.contains(char::is_control), "give the context a name in one line");
    let is_there = contexts.all().any(|(known, _)| known == name);
    ensure!(replace || !is_there, "context {name:?} is there already; change it with --replace");
    // Refuses an address that nothing can be asked at.
    Client::new(&node, None)?;
    let by = |key: &str, text: &str| Value::Table(Table::from_iter([(key.to_owned(), Value::from(text))]));
    let file = token_file.map(std::path::absolute).transpose().context("looking for the file of the token")?;
    let file = file.map(|file| file.to_str().map(str::to_owned).context("the file's name is no UTF-8")).transpose()?;
    let token = file.map(|file| by("file", &file)).or_else(|| token_env.map(|name| by("env", &name)));
    contexts.add(&name, &node, token.or_else(|| token_in_clear.map(Value::from)))
}

/// Where a token is, never the token.
fn shown(token: Option<&Value>) -> String {
    match token {
        None => "none".to_owned(),
        Some(Value::Table(place)) => {
            let word = |key: &str| Some(format!("{key} {}", place.get(key)?.as_str()?));
            word("file").or_else(|| word("env")).unwrap_or_else(|| "?".to_owned())
        }
        Some(_) => "in clear".to_owned(),
    }
}

fn list(contexts: &Contexts, as_json: bool) -> anyhow::Result<()> {
    let all = contexts.all().map(|(name, context)| {
        let node = context.get("node").and_then(Value::as_str).unwrap_or_default();
        (name, node, shown(context.get("token")), contexts.current() == Some(name))
    });
    if as_json {
        let all = all.map(
            |(name, node, token, current)| json!({"name": name, "node": node, "token": token, "current": current}),
        );
        return output::json(&json!({"contexts": all.collect::<Vec<_>>()}));
    }
    let rows = all.map(|(name, node, token, current)| {
        vec![if current { "*" } else { "" }.to_owned(), name.to_owned(), node.to_owned(), token]
    });
    let none = "no contexts yet; add one with `duetime context add NAME --node URL`";
    output::table(&["", "context", "node", "token"], rows.collect(), none)
}
