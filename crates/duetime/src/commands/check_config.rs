//! `duetime check-config`: all that is wrong with a file and what lies over it, then its store and sinks are tried.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{SinkBinder as _, TopicName};
use duetime_http::{Peers, TlsFiles, certificate_fault};
use duetime_metrics::Meters;
use duetime_ownership::Etcd;
use duetime_sinks::SinkRegistry;
use duetime_supervisor::Supervisor;

use super::output;
use crate::clock::SystemClock;
use crate::config::{self, OwnershipMode, ReadConfig, StoreConfig};
use crate::flags::ConfigFlags;
use crate::listener::{STRANGERS_SEE_MORE, client_certificates};
use crate::stores;

/// The bit of a file's mode.
const READABLE_BY_OTHERS: u32 = 0o004;

/// Longest wait for a store that does not answer.
const STORE_MAX: Duration = Duration::from_secs(10);

/// Runs it; false: something is wrong. `offline`: nothing is asked, and only what keeps a node from starting is wrong.
pub async fn run(file: &Path, offline: bool, flags: &ConfigFlags) -> anyhow::Result<bool> {
    let overlays = flags.overlays();
    let ReadConfig { config, lines } = match config::load(Some(file), &overlays) {
        Ok(loaded) => loaded,
        Err(complaints) => {
            for complaint in &complaints {
                output::complain(&complaint.to_string());
            }
            return Ok(false);
        }
    };
    output::line("configuration: read, nothing unknown")?;
    if !overlays.is_empty() {
        let over: Vec<&str> = overlays.iter().map(|overlay| overlay.flag).collect();
        output::line(&format!("over the file, by flag or variable: {}", over.join(", ")))?;
    }
    for key in readable_secrets(file) {
        output::warn(&format!(
            "{}: {key} is a secret, and every user of this host may read the file; write {{ file = \"PATH\" }} there, or \
             chmod o-r the file",
            file.display()
        ));
    }
    // What turns out to be wrong only now is said as what was wrong with the text: with its line and its key.
    let complain = |path: &[&str], fault: String| output::complain(&lines.complaint(path, fault).to_string());
    let mut good = true;
    if !offline && let Err(fault) = store(&config.store).await? {
        complain(&["store", "url"], fault);
        good = false;
    }
    if let Some((_, fault)) = config.node.tls.as_ref().and_then(TlsFiles::expired) {
        complain(&["node", "tls", "cert"], fault);
        // A node starts with it all the same.
        good &= offline;
    }
    for (path, file) in client_certificates(&config) {
        if let Some(fault) = certificate_fault(file) {
            complain(&path, fault);
            good = false;
        }
    }
    if let Err(fault) = Peers::new(&config.node.peer_tls) {
        complain(&["node", "peer_tls"], fault);
        good = false;
    }
    if config.auth.shows_strangers_more() {
        output::line(&format!("warning: {}", lines.complaint(&["auth", "metrics"], STRANGERS_SEE_MORE)))?;
    }
    if !offline && config.ownership.mode == OwnershipMode::Etcd {
        match Etcd::check(&config.ownership.etcd, &config.store.namespace()).await {
            Ok(()) => output::line("etcd: answers")?,
            Err(error) => {
                complain(&["ownership", "etcd"], error);
                good = false;
            }
        }
    }
    for (name, sink) in &config.sinks {
        if sink.redis_url().is_some_and(|url| share_a_server(&url.to_string(), &config.store.shown())) {
            output::line(&format!(
                "sink {name}: warning: it writes to the server of the store; keys of the store are refused, and others \
                 are not: give it a server of its own, or a user of Redis that may write to its streams alone"
            ))?;
        }
    }
    match SinkRegistry::new(config.sinks.clone(), Arc::new(SystemClock), &config.store.namespace()) {
        Err(error) => {
            output::complain(&error);
            good = false;
        }
        Ok(sinks) => {
            let mut answering = BTreeSet::new();
            let answers = if offline { Vec::new() } else { sinks.check().await };
            for (name, answer) in answers {
                match answer {
                    Ok(()) => {
                        output::line(&format!("sink {name}: answers"))?;
                        answering.insert(name);
                    }
                    Err(error) => {
                        complain(&["sinks", &name], error);
                        good = false;
                    }
                }
            }
            // What is to become of a topic whose sink does not answer was said with the sink.
            let asked = config.topics.iter().map(async |(name, topic)| {
                let (sink, topic_name) = (topic.sink.as_ref()?, TopicName::new(name).ok()?);
                let error = match sinks.bind(&topic_name, sink) {
                    Ok(bound) if answering.contains(&sink.name) => bound.check().await.err()?,
                    Ok(_) => return None,
                    Err(error) => error.to_string(),
                };
                Some((name, error))
            });
            for (name, error) in futures::future::join_all(asked).await.into_iter().flatten() {
                complain(&["topics", name, "sink"], error);
                good = false;
            }
        }
    }
    Ok(good)
}

/// The keys of secrets that are written out in a file which everybody may read.
fn readable_secrets(file: &Path) -> Vec<String> {
    let is_open = std::fs::metadata(file).is_ok_and(|is| is.permissions().mode() & READABLE_BY_OTHERS != 0);
    let text = if is_open { std::fs::read_to_string(file).unwrap_or_default() } else { String::new() };
    let mut found = Vec::new();
    if let Ok(table) = text.parse::<toml::Table>() {
        secrets_in(&toml::Value::Table(table), "", &mut found);
    }
    found
}

/// Whether a text is a URL with a password in it.
fn has_password(text: &str) -> bool {
    let authority = text.split_once("://").and_then(|(_, rest)| rest.split('/').next());
    authority.and_then(|it| it.rsplit_once('@')).is_some_and(|(user, _)| user.contains(':'))
}

fn secrets_in(value: &toml::Value, key: &str, found: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, inner) in table {
                secrets_in(inner, &if key.is_empty() { name.clone() } else { format!("{key}.{name}") }, found);
            }
        }
        toml::Value::Array(all) => all.iter().for_each(|inner| secrets_in(inner, key, found)),
        toml::Value::String(text) => {
            let name = key.rsplit('.').next().unwrap_or(key);
            let is_named = ["secret", "secrets", "signing_secrets", "password", "authorization"].contains(&name)
                || name.ends_with("_password");
            if (is_named || has_password(text)) && !found.iter().any(|known| known == key) {
                found.push(key.to_owned());
            }
        }
        _ => {}
    }
}

/// Whether two URLs of Redis name the same server, as far as their texts say it.
fn share_a_server(one: &str, other: &str) -> bool {
    let servers = |url: &str| -> BTreeSet<String> {
        let Some((_, rest)) = url.split_once("://") else { return BTreeSet::new() };
        let hosts = rest.split('/').next().unwrap_or_default();
        let named = |host: &str| {
            let (name, port) = host.rsplit_once(':').unwrap_or((host, "6379"));
            let name = if matches!(name, "localhost" | "[::1]") { "127.0.0.1" } else { name };
            format!("{}:{port}", name.to_ascii_lowercase())
        };
        hosts.split(',').map(named).collect()
    };
    !servers(one).is_disjoint(&servers(other))
}

/// Opens the store, and says what is wrong with it.
async fn store(config: &StoreConfig) -> anyhow::Result<Result<(), String>> {
    let shown = config.shown();
    if let Some(why) = stores::unopened(config) {
        output::line(&format!("store {shown}: {why}"))?;
        return Ok(Ok(()));
    }
    let meters = Arc::new(Meters::new());
    let supervisor = Supervisor::new(meters.clone());
    match tokio::time::timeout(STORE_MAX, stores::open(config, meters, &supervisor)).await {
        Ok(Ok(_)) => {
            output::line(&format!("store {shown}: answers"))?;
            Ok(Ok(()))
        }
        Ok(Err(error)) => Ok(Err(output::chain(&error))),
        Err(_) => Ok(Err(format!("store {shown}: did not answer within {} s", STORE_MAX.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_everybody_may_read_are_named_by_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("duetime.toml");
        let text = "[store]\nurl = \"redis://user:word@host:6379\"\nsentinel_password = { file = \"/run/x\" }\n\
                    [[auth.tokens]]\nname = \"a\"\nsecret = \"0123456789abcdef\"\n\
                    [sinks.hook]\nurl = \"https://host/path:a@b\"\nsigning_secrets = [\"whsec_x\"]\n\
                    headers = { authorization = { env = \"A\" } }\n";
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let mut found = readable_secrets(&file);
        found.sort();
        assert_eq!(found, ["auth.tokens.secret", "sinks.hook.signing_secrets", "store.url"]);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(readable_secrets(&file), Vec::<String>::new());
    }

    #[test]
    fn the_store_s_server_is_recognized_by_name_and_port() {
        assert!(share_a_server("redis://localhost/3", "redis://127.0.0.1:6379"));
        assert!(share_a_server("redis-cluster://a:1,B:2", "redis-cluster://b:2,c:3"));
        assert!(!share_a_server("redis://a:1", "redis://a:2") && !share_a_server("redis://a:1", "embedded:./a:1"));
    }
}
