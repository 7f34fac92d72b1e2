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
use crate::test_clock::{self, Reach};
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
    /// For tests of your programs, never in production: time is moved ahead by `duetime test-clock`, messages are kept
    /// in a new folder, and only programs of this machine can reach the node, unless it says `=exposed`.
    #[arg(long, value_enum, value_name = "REACH", num_args = 0..=1, require_equals = true,
        default_missing_value = "loopback")]
    pub test_clock: Option<Reach>,
}

/// `duetime serve`.
pub async fn run(args: &ServeArgs, steps: Arc<dyn Steps>) -> anyhow::Result<bool> {
    let mut overlays = args.flags.overlays();
    // Removed when the node has ended.
    let own_folder = match args.test_clock {
        Some(_) if args.flags.store.is_none() => {
            let (folder, overlay) = test_clock::own_folder()?;
            overlays.push(overlay);
            Some(folder)
        }
        _ => None,
    };
    let ReadConfig { config, lines } = match config::load(args.config.as_deref(), &overlays) {
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
    if args.test_clock.is_some() {
        test_clock::check_store(&config)?;
    }
    let signals = drain::Signals::listen().context("listening for signals")?;
    let hangup = listener::hangup().context("listening for signals")?;
    let listener = listen(&config.node.address()).await?;
    let console = match config.console.address() {
        Some(address) => Some(listen(&address).await?),
        None => None,
    };
    let listeners = Listeners { listener, console };
    if let Some(reach) = args.test_clock {
        listeners.addresses()?.into_iter().try_for_each(|address| test_clock::check_address(reach, address))?;
    }
    let auth = Auth::load(&config.auth).map_err(anyhow::Error::msg)?;
    let options = listener::options(&config, &lines)?;
    // It has the whole text of the configuration.
    drop(lines);
    let running = node::start(&config, listeners, steps, &auth, &options, args.test_clock.is_some()).await?;
    let audit = options.audit.clone();
    let (file, meters) = (args.config.as_deref(), running.meters.clone());
    let reloader = Reloader::new(file, overlays, config.clone(), auth, options, meters, hangup);
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
    drop(own_folder);
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
