//! `duetime token new`: a secret for a client, and its hash for the node.

use serde_json::json;

use super::output;
use crate::cli::TokenCommand;

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
