//! `duetime init`: a configuration file to begin with.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;

use super::output;
use crate::config::{Overlay, check_text};
use crate::flags::ConfigFlags;

/// Secrets may come into it.
const FILE_MODE: u32 = 0o600;

/// What each key is for, and its value where none is given; without one it is left out.
const KEYS: &[(&str, &str, &str, Option<&str>)] = &[
    ("node", "id", "this node's name; the machine's if absent", None),
    ("node", "listen", "other than loopback only with [[auth.tokens]]", Some("\"127.0.0.1:3830\"")),
    ("node", "shutdown_grace", "how long a stop may take", None),
    ("node", "log_format", "or \"json\"", Some("\"text\"")),
    ("store", "url", "or redis://HOST:6379/0, where several nodes share it", Some("\"embedded:./duetime-data\"")),
    ("store", "namespace", "what all keys in Redis begin with", None),
    ("ownership", "mode", "how several nodes share the shards: \"etcd\" or \"round-robin\"", None),
    ("ownership", "etcd", "addresses of etcd", None),
];

/// The end of the file: what most set next.
const NEXT: &str = "\
# [sinks.hook]                         # where due messages go; without a sink consumers claim them
# type = \"http\"
# url = \"https://shop.example/due\"

# [topics.orders]                      # created at start if absent
# sink = { name = \"hook\" }
# visibility_timeout = \"30s\"
";

/// A configuration file to begin with.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The file to make; it must not be there yet.
    #[arg(default_value = "duetime.toml")]
    file: PathBuf,
    /// Ask for a token: print one of this name with all scopes, and write its hash.
    #[arg(long, value_name = "NAME")]
    with_token: Option<String>,
    #[command(flatten)]
    flags: ConfigFlags,
}

/// The file, by the sections of its keys.
fn text(overlays: &[Overlay], token: Option<(&str, &str)>) -> String {
    let mut text = "# All keys with their defaults are in duetime.example.toml and docs/CONFIGURATION.md. `duetime check-config FILE` says\n\
                    # what is wrong with this file; `duetime serve --config FILE` starts a node.\n"
        .to_owned();
    let mut last = "";
    for (section, key, what, default) in KEYS {
        let given =
            overlays.iter().find(|overlay| overlay.key == (section, key)).map(|overlay| overlay.value.to_string());
        let Some(value) = given.or_else(|| default.map(str::to_owned)) else { continue };
        if last != *section {
            let _ = write!(text, "\n[{section}]\n");
            last = section;
        }
        let _ = writeln!(text, "{:<38} # {what}", format!("{key} = {value}"));
    }
    if let Some((name, hash)) = token {
        let name = toml::Value::from(name);
        let _ = write!(text, "\n[[auth.tokens]]\nname = {name}\nhash = {hash:?}\nscopes = [\"admin\"]\n");
    }
    let _ = write!(text, "\n{NEXT}");
    text
}

/// `duetime init`.
pub fn run(args: &InitArgs) -> anyhow::Result<bool> {
    let token = args.with_token.as_deref().map(|name| (name, duetime_http::new_token()));
    let text = text(&args.flags.overlays(), token.as_ref().map(|(name, (_, hash))| (*name, hash.as_str())));
    if let Err(complaints) = check_text(&text, args.file.clone()) {
        for complaint in &complaints {
            output::complain(&complaint.to_string());
        }
        bail!("nothing was written");
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&args.file);
    let mut file = match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} is there already; give another name, or remove it", args.file.display())
        }
        made => made.with_context(|| format!("cannot write {}", args.file.display()))?,
    };
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", args.file.display()))?;
    let shown = args.file.display();
    output::line(&format!("{shown} is written; start a node with `duetime serve --config {shown}`"))?;
    if let Some((_, (secret, _))) = &token {
        output::line(&format!(
            "token: {secret}\nIt is not shown again; commands take it as --token or DUETIME_TOKEN."
        ))?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_one_that_a_node_takes() {
        let overlay = |key, value: &str| Overlay { flag: "--x", key, value: toml::Value::from(value) };
        for (overlays, token) in [
            (vec![], None),
            (vec![overlay(("store", "url"), "redis://h:6379/0"), overlay(("ownership", "mode"), "round-robin")], None),
            (vec![overlay(("node", "listen"), "0.0.0.0:3830")], Some(("ops \"1\"", duetime_http::new_token().1))),
        ] {
            let text = text(&overlays, token.as_ref().map(|(name, hash)| (*name, hash.as_str())));
            check_text(&text, PathBuf::new()).unwrap_or_else(|complaints| panic!("{complaints:?}\n{text}"));
        }
        // What is commented out is right too.
        let whole = text(&[], None).replace("# [", "[").replace("\n# type", "\ntype").replace("\n# url", "\nurl");
        let whole = whole.replace("\n# sink", "\nsink").replace("\n# visibility", "\nvisibility");
        check_text(&whole, PathBuf::new()).unwrap_or_else(|complaints| panic!("{complaints:?}\n{whole}"));
    }
}
