//! `duetime token new`: a secret for a client, and its hash for the node.

use serde_json::json;

use clap::Subcommand;

use super::output;

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Prints a token nobody can guess, and its hash for the configuration file.
    New {
        /// The name of the token in the configuration and in logs.
        #[arg(long, value_name = "NAME", default_value = "NAME")]
        name: String,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

/// Runs it.
pub fn run(command: &TokenCommand) -> anyhow::Result<bool> {
    let TokenCommand::New { name, json } = command;
    let (secret, hash) = duetime_http::new_token();
    if *json {
        output::line(&json!({"name": name, "secret": secret, "hash": hash}).to_string())?;
        return Ok(true);
    }
    output::line(&format!(
        "token: {secret}\n\nThe client sends it (DUETIME_TOKEN, or Authorization: Bearer); it is not shown again. For the node's file:\n\n\
         [[auth.tokens]]\nname = {name:?}\nhash = {hash:?}\nscopes = [\"produce\", \"consume\"]"
    ))?;
    Ok(true)
}
