//! The settings of a NATS server: in the configuration file, and per topic.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;
use duetime_settings::{ClientTls, Secret, TargetUrl};
use serde::Deserialize;

use crate::fault::SinkFault;
use crate::probe_wait::ProbeWaitMax;
use crate::settings;

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
    /// Longest wait for an acknowledgement while nothing is acknowledged on the connection; while others are, half as
    /// long again. Default `10s`.
    ///
    /// What may be unacknowledged, over all topics of the sink, is what JetStream acknowledges in an eighth of this.
    /// Keep it below half the topic's `visibility_timeout`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<10>")]
    pub timeout: Duration,
    /// Longest time to connect. Default `3s`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<3>")]
    pub connect_timeout: Duration,
    /// A PEM file of an authority that is trusted besides the system's. Default none.
    #[serde(rename = "ca_file", default, deserialize_with = "ClientTls::of_ca_file")]
    pub certificates: ClientTls,
    /// Longest wait between two tries of a target that is down, from 100ms to 1h. Default `5s`.
    ///
    /// Higher where each try is a burden for the target; what waited is that much later once it is back.
    #[serde(default)]
    pub max_probe_wait: ProbeWaitMax,
}

impl NatsConfig {
    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), SinkFault> {
        let servers = self.servers()?;
        if self.certificates.ca_file.is_some() && !servers.iter().all(ServerAddr::tls_required) {
            let fault =
                "ca_file is only of use with tls:// addresses; write tls where url says nats, or leave ca_file out";
            return Err(SinkFault::at("ca_file", fault));
        }
        SinkFault::of_zero(self.timeout, self.connect_timeout)?;
        if self.user.is_some() != self.password.is_some() {
            let given = if self.user.is_some() { "user" } else { "password" };
            return Err(SinkFault::at(given, "give `user` and `password` together"));
        }
        if let Some(file) = &self.certificates.ca_file {
            file.read("ca_file").map_err(|fault| SinkFault::at("ca_file", fault))?;
        }
        if let Some(file) = &self.credentials_file {
            std::fs::metadata(file).map_err(|error| {
                SinkFault::at("credentials_file", format!("cannot read {}: {error}", file.display()))
            })?;
        }
        Ok(())
    }

    /// The addresses in `url`.
    pub(super) fn servers(&self) -> Result<Vec<ServerAddr>, SinkFault> {
        let help = || format!("url {} is refused; write it as \"nats://host:4222\"", self.url);
        let read = |server: &str| {
            if server.contains('@') {
                let fault = "url has a user or password; give `user` and `password`, or `token`";
                return Err(SinkFault::at("url", fault));
            }
            server.parse().map_err(|_| SinkFault::at("url", help()))
        };
        self.url.expose().split(',').map(read).collect()
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
