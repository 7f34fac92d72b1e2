//! The settings of a NATS server: in the configuration file, and per topic.

use std::path::PathBuf;
use std::time::Duration;

use duetime_settings::{PemFile, Secret, TargetUrl};
use serde::Deserialize;

use crate::probe_wait::ProbeWaitMax;

/// The type as in the configuration.
pub const KIND: &str = "nats";

/// `type = "nats"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatsConfig {
    /// The servers of one cluster: `nats://host:4222`, `tls://host:4222` for TLS, several with commas.
    /// Required. Without user and password: those have keys of their own.
    pub url: TargetUrl,
    /// With `password`, who logs in. Default: nobody.
    #[serde(default)]
    pub user: Option<String>,
    /// See `user`.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A token to log in with. Default none.
    #[serde(default)]
    pub token: Option<Secret>,
    /// A `.creds` file to log in with. Default none.
    #[serde(default)]
    pub credentials_file: Option<PathBuf>,
    /// Longest wait for an acknowledgement. Default `10s`.
    ///
    /// Keep it below half the topic's `visibility_timeout`.
    #[serde(with = "duetime_core::units::duration", default = "ten_seconds")]
    pub timeout: Duration,
    /// Longest time to connect. Default `3s`.
    #[serde(with = "duetime_core::units::duration", default = "three_seconds")]
    pub connect_timeout: Duration,
    /// A PEM file of an authority that is trusted besides the system's. Default none.
    #[serde(default)]
    pub ca_file: Option<PemFile>,
    /// Longest wait between two tries of a target that is down, from 100ms to 1h. Default `5s`.
    ///
    /// Higher where each try is a burden for the target; what waited is that much later once it is back.
    #[serde(default)]
    pub probe_wait_max: ProbeWaitMax,
}

const fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

const fn three_seconds() -> Duration {
    Duration::from_secs(3)
}

impl NatsConfig {
    /// Refuses values that make no sense.
    ///
    /// # Errors
    ///
    /// A sentence that names the field and the fix.
    pub fn check(&self) -> Result<(), String> {
        let help = || format!("url {} is refused; write it as \"nats://host:4222\"", self.url);
        for server in self.url.expose().split(',') {
            if server.contains('@') {
                return Err("url has a user or password; give `user` and `password`, or `token`".to_owned());
            }
            server.parse::<async_nats::ServerAddr>().map_err(|_| help())?;
        }
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err("timeout and connect_timeout must be above 0".to_owned());
        }
        if self.user.is_some() != self.password.is_some() {
            return Err("give `user` and `password` together".to_owned());
        }
        if let Some(file) = &self.ca_file {
            file.read("ca_file")?;
        }
        if let Some(file) = &self.credentials_file {
            std::fs::metadata(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        }
        Ok(())
    }
}

/// What a topic may set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NatsSettings {
    /// The subject, a template over `{topic}`, `{id}` and `{header.NAME}`; in what is filled in, dots,
    /// wildcards and spaces become `_`. A stream must be bound to it. Default `{topic}`.
    pub subject: String,
}

impl Default for NatsSettings {
    fn default() -> Self {
        Self { subject: "{topic}".to_owned() }
    }
}

impl NatsSettings {
    /// The names of the settings.
    pub const KNOWN: &[&str] = &["subject"];
}
