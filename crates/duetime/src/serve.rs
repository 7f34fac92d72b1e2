//! `duetime serve`: reads the configuration, listens, has the node started, and waits for its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use duetime_http::Auth;
use duetime_resize::Steps;
use duetime_supervisor::Policy;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tracing::{error, warn};

use crate::commands::output;
use crate::config::{self, ReadConfig};
use crate::drain;
use crate::flags::ConfigFlags;
use crate::listener::{self, Reloader};
use crate::logs;
use crate::node::{self, Listeners};
use crate::{manager, panics};

/// How long the end waits for the audit log to be written.
const AUDIT_WITHIN: Duration = Duration::from_secs(2);

/// The file of `duetime serve`, and what lies over it.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// The configuration file; see duetime.example.toml.
    #[arg(long, value_name = "FILE", env = "DUETIME_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub flags: ConfigFlags,
}

/// `duetime serve`.
///
/// # Errors
///
/// Whatever keeps the node from starting, with what to do about it.
pub async fn run(args: &ServeArgs, steps: Arc<dyn Steps>) -> anyhow::Result<bool> {
    let ReadConfig { config, lines } = match config::load(args.config.as_deref(), &args.flags.overlays()) {
        Ok(loaded) => loaded,
        Err(complaints) => {
            for complaint in &complaints {
                output::complain(&complaint.to_string());
            }
            return Ok(false);
        }
    };
    panics::hide(config.secrets());
    logs::start(config.node.log_format).context("starting the log")?;
    hide_memory();
    let signals = drain::Signals::listen().context("listening for signals")?;
    let hangup = listener::hangup().context("listening for signals")?;
    let listener = listen(&config.node.address()).await?;
    let console = match config.console.address() {
        Some(address) => Some(listen(&address).await?),
        None => None,
    };
    let auth = Auth::load(&config.auth).map_err(anyhow::Error::msg)?;
    let options = listener::options(&config, &lines)?;
    // It has the whole text of the configuration.
    drop(lines);
    let running = node::start(&config, Listeners { listener, console }, steps, &auth, &options).await?;
    let audit = options.audit.clone();
    let (file, meters) = (args.config.as_deref(), running.meters.clone());
    let reloader = Reloader::new(file, args.flags.overlays(), config.clone(), auth, options, meters, hangup);
    let (reloader, stop) = (Arc::new(Mutex::new(reloader)), running.shutdown.clone());
    running.supervisor.start("reload", Policy::RestartOrEnd, &running.shutdown, move || {
        let (reloader, stop) = (reloader.clone(), stop.clone());
        async move { reloader.lock().await.run(stop).await }
    });
    manager::watch(running.supervisor.clone());
    manager::ready();
    let is_wanted = drain::run_until_signal(running, signals, config.node.shutdown_grace).await;
    let unwritten = audit.flush(AUDIT_WITHIN);
    if unwritten > 0 {
        error!(lines = unwritten, "the audit log takes no lines, and these are lost with the end of the program");
    }
    Ok(is_wanted)
}

/// Keeps other programs of the same user from reading this one's memory, and the system from writing it into a core:
/// messages and secrets are in it.
fn hide_memory() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        warn!(%error, "other programs of this user can read the memory of this one, where messages and secrets are");
    }
}

async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    listener::listen(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow!(
            "{address} is in use already: is another node running? stop it, or choose another address with --listen"
        ),
        std::io::ErrorKind::PermissionDenied => {
            anyhow!("permission denied for {address}; choose a port above 1023 with --listen")
        }
        _ => anyhow!("cannot listen on {address}: {error}; choose another address with --listen"),
    })
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn the_memory_of_a_node_is_for_itself_alone() {
        super::hide_memory();
        assert!(!nix::sys::prctl::get_dumpable().unwrap());
    }
}
