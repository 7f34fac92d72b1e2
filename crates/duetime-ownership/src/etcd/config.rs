//! What an operator sets about etcd.
//!
//! Upstream: the program's configuration.

use std::sync::Arc;
use std::time::Duration;

use duetime_settings::{ClientPem, ClientTls, Secret};
use serde::Deserialize;

/// Bounds of `lease_ttl`.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(600);

/// How to reach etcd, and how long leases live: the section `[ownership]` but for its `mode`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdConfig {
    /// `http://HOST:PORT` or `https://HOST:PORT`, of all members of the cluster; without a scheme it is `http://`.
    #[serde(rename = "etcd", deserialize_with = "endpoints")]
    pub endpoints: Vec<String>,
    /// User, where etcd asks for one.
    #[serde(rename = "etcd_user")]
    pub user: Option<String>,
    /// Its password: a string, `{ file = "PATH" }` or `{ env = "NAME" }`.
    #[serde(rename = "etcd_password")]
    pub password: Option<Secret>,
    /// For `https://` addresses: `ca_file`, `cert_file`, `key_file`, `server_name`. Default: the public
    /// authorities.
    #[serde(rename = "etcd_tls")]
    pub tls: ClientTls,
    /// How long a silent node keeps its shards, 1 s to 10 m, in whole seconds. Default `10s`.
    ///
    /// Set it above the longest stall of a healthy machine: too low means that shards wander, too
    /// high that a dead node's messages are late by that much.
    #[serde(with = "duetime_core::units::duration")]
    pub lease_ttl: Duration,
}

impl Default for EtcdConfig {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            user: None,
            password: None,
            tls: ClientTls::default(),
            lease_ttl: Duration::from_secs(10),
        }
    }
}

fn endpoints<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let whole = |address: String| if address.contains("://") { address } else { format!("http://{address}") };
    Ok(Vec::<String>::deserialize(from)?.into_iter().map(whole).collect())
}

impl EtcdConfig {
    /// Whether an address is of TLS.
    fn has_tls(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"))
    }

    /// What a connection that is made now trusts and shows; nothing without TLS.
    ///
    /// # Errors
    ///
    /// A sentence that names the file that cannot be read.
    pub(super) fn certificates(&self) -> Result<Option<Arc<ClientPem>>, String> {
        self.has_tls().then(|| self.tls.read()).transpose()
    }

    /// What is wrong with `lease_ttl`.
    #[must_use]
    pub fn lease_fault(&self) -> Option<&'static str> {
        let is_good = (LEASE_MIN..=LEASE_MAX).contains(&self.lease_ttl) && self.lease_ttl.subsec_nanos() == 0;
        (!is_good).then_some("must be 1s to 10m, in whole seconds")
    }

    /// All else that makes no sense where etcd is used: the key of the section, and a sentence with the fix.
    #[must_use]
    pub fn faults(&self) -> Vec<(&'static str, &'static str)> {
        let is_plain = |address: &String| {
            ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme)) && !address.contains('@')
        };
        let mut found = Vec::new();
        if self.endpoints.is_empty() {
            found.push(("etcd", "mode \"etcd\" needs its addresses; write etcd = [\"http://HOST:2379\"]"));
        } else if !self.endpoints.iter().all(is_plain) {
            let fault = "write addresses as http://HOST:2379 or https://HOST:2379, and the user in ownership.etcd_user";
            found.push(("etcd", fault));
        }
        if self.user.is_some() != self.password.is_some() {
            found.push(("etcd_user", "give both etcd_user and etcd_password, or neither"));
        }
        let is_encrypted = |address: &String| address.starts_with("https://");
        if let Some(fault) = self.tls.fault() {
            found.push(("etcd_tls", fault));
        } else if self.tls != ClientTls::default() && !self.endpoints.iter().all(is_encrypted) {
            let fault =
                "etcd_tls is only of use with https:// addresses; write https in ownership.etcd, or leave it out";
            found.push(("etcd_tls", fault));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_refused_where_an_address_is_not_encrypted() {
        let faults = |addresses: [&str; 2]| {
            let tls = serde_json::json!({"ca_file": "/etc/ca.pem"});
            let config = serde_json::json!({"etcd": addresses, "etcd_tls": tls});
            serde_json::from_value::<EtcdConfig>(config).unwrap().faults()
        };
        assert!(faults(["https://a:2379", "https://b:2379"]).is_empty());
        for other in ["http://b:2379", "b:2379"] {
            let found = faults(["https://a:2379", other]);
            assert!(matches!(found[..], [("etcd_tls", text)] if text.contains("https")), "{found:?}");
        }
    }
}
