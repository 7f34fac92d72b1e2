//! What is wrong with values that can be read: by themselves, and together.
//!
//! Upstream: reading the file. A rule is left out where a key that it looks at is wrong already.

use std::net::SocketAddr;
use std::sync::Arc;

use duetime_core::in_place::IN_PLACE_NEEDS_STREAMS;
use duetime_core::names::refuse_dots;
use duetime_core::sink::check_delivery;
use duetime_core::{Sink, SinkBinder as _, TopicConfig, TopicName};
use duetime_sinks::{SinkConfig, SinkFault, SinkRegistry};

use super::first_message;
use super::read::ConfigFault;
use super::{Config, OwnershipMode};
use crate::clock::SystemClock;

/// Most connections that can be asked for.
const CONNECTIONS_MAX: usize = 1_000_000;

/// Least memory for requests: twice the largest body.
const REQUEST_MEMORY_MIN: u64 = 64 << 20;

/// Most characters of what the console calls the cluster.
const CONSOLE_NAME_CHARS_MAX: usize = 40;

/// A fault, and the key below its path that has to be changed, where that is known.
pub type KeyedFault = (ConfigFault, Option<&'static str>);

/// All faults of `config`, but those that follow from the keys in `wrong`.
pub fn faults(config: &Config, wrong: &[Vec<String>]) -> Vec<KeyedFault> {
    let mut rules = ConfigRules { config, wrong, found: Vec::new() };
    rules.store();
    rules.ownership();
    for (key, fault) in config.resize.faults() {
        rules.add(&["resize", key], fault);
    }
    rules.node();
    rules.console();
    rules.sinks_and_topics();
    rules.found
}

/// The sinks of the file that can be made, and what is wrong with the others.
struct CheckedSinks<'a> {
    sinks: &'a SinkRegistry,
    faulty: &'a [(String, SinkFault)],
}

struct ConfigRules<'a> {
    config: &'a Config,
    wrong: &'a [Vec<String>],
    found: Vec<KeyedFault>,
}

impl ConfigRules<'_> {
    /// Whether nothing is wrong with the key or with what it is in.
    fn is_sound(&self, path: &[&str]) -> bool {
        !self.wrong.iter().any(|wrong| wrong.iter().zip(path).all(|(wrong, key)| wrong == key))
    }

    fn add(&mut self, path: &[&str], fault: impl Into<String>) {
        self.add_at(path, None, fault);
    }

    fn add_at(&mut self, path: &[&str], key: Option<&'static str>, fault: impl Into<String>) {
        if self.is_sound(path) {
            self.found.push(((path.iter().map(|key| (*key).to_owned()).collect(), fault.into()), key));
        }
    }

    /// Whether it is known that the store is of one node alone.
    fn is_unshared(&self) -> bool {
        self.is_sound(&["store", "url"]) && !self.config.store.is_shared()
    }

    fn store(&mut self) {
        // What the rest means depends on it.
        if self.is_sound(&["store", "url"]) {
            for (key, fault) in self.config.store.faults() {
                self.add(&["store", key], fault);
            }
        }
    }

    fn ownership(&mut self) {
        let ownership = &self.config.ownership;
        let mode = ownership.mode;
        if mode != OwnershipMode::Solo && self.is_unshared() {
            let fault =
                format!("{:?} shares shards among nodes, and an embedded store has one; use redis://", mode.word());
            self.add(&["ownership", "mode"], fault);
        }
        if let Some(fault) = ownership.etcd.lease_fault() {
            self.add(&["ownership", "lease_ttl"], fault);
        }
        if mode != OwnershipMode::Etcd {
            return;
        }
        for (key, fault) in ownership.etcd.faults() {
            // Without its password, which is wrong already, a user says nothing.
            if key != "etcd_user" || self.is_sound(&["ownership", "etcd_password"]) {
                self.add(&["ownership", key], fault);
            }
        }
    }

    fn node(&mut self) {
        let node = &self.config.node;
        if let Err(fault) = refuse_dots("name", &self.config.node_id()) {
            self.add(&["node", "id"], fault.to_string());
        }
        if node.id.as_deref().is_some_and(str::is_empty) {
            self.add(&["node", "id"], "is empty; give a name, or leave it out for that of the machine");
        }
        if let Some(fault) = node.audit.as_ref().and_then(duetime_http::AuditTarget::fault) {
            self.add(&["node", "audit"], fault);
        }
        let hosts = duetime_http::Hosts::new(&node.hosts);
        if let Err(fault) = &hosts {
            self.add(&["node", "hosts"], fault.clone());
        }
        for (key, value) in
            [("connections", node.connections), ("connections_per_address", node.connections_per_address)]
        {
            if !(1..=CONNECTIONS_MAX).contains(&value) {
                self.add(&["node", key], format!("must be 1 to {CONNECTIONS_MAX}"));
            }
        }
        if node.request_memory < REQUEST_MEMORY_MIN {
            self.add(&["node", "request_memory"], "must be 64MiB or more, or the largest requests never fit");
        }
        if let Some(Err((key, fault))) = node.tls.as_ref().map(duetime_http::Tls::load) {
            self.add_at(&["node", "tls"], Some(key), fault);
        }
        if let Some(fault) = node.advertise.as_deref().and_then(duetime_http::advertise_fault) {
            self.add(&["node", "advertise"], fault);
        }
        // What its files hold is none of the text's: a bad one must not keep a token from being taken back.
        if let Some(fault) = duetime_http::Peers::fault(&node.peer_tls) {
            self.add(&["node", "peer_tls"], fault);
        }
        for (at, fault) in self.config.auth.faults() {
            self.add(&["auth", "tokens", &at.to_string()], fault);
        }
        let is_open = self.config.auth.tokens.is_empty() && self.is_sound(&["auth"]);
        match node.address().parse::<SocketAddr>() {
            Ok(address) if is_open && !address.ip().is_loopback() => {
                let fault = format!(
                    "{address} can be reached from other machines, and no token is asked for; add [[auth.tokens]] to \
                     the configuration, or listen on 127.0.0.1"
                );
                self.add(&["node", "listen"], fault);
            }
            Ok(_) if is_open && hosts.is_ok_and(|hosts| hosts.allow_all()) => {
                let fault = "\"*\" lets any web page reach this node, and no token is asked for; name the hosts, or add \
                             [[auth.tokens]]";
                self.add(&["node", "hosts"], fault);
            }
            Ok(_) => {}
            Err(_) => {
                let fault = format!(
                    "{:?} is not an address; write it like \"127.0.0.1:3830\" or \"localhost:3830\"",
                    node.listen
                );
                self.add(&["node", "listen"], fault);
            }
        }
    }

    fn console(&mut self) {
        let (config, path) = (self.config, ["console", "listen"]);
        let is_short = |name: &String| name.chars().count() <= CONSOLE_NAME_CHARS_MAX;
        let is_text = |name: &String| !name.trim().is_empty() && !name.chars().any(char::is_control);
        if config.console.name.as_ref().is_some_and(|name| !is_short(name) || !is_text(name)) {
            let fault =
                format!("must be one line of 1 to {CONSOLE_NAME_CHARS_MAX} characters; leave it out for no name");
            self.add(&["console", "name"], fault);
        }
        let Some(listen) = config.console.address() else { return };
        let is_open = config.auth.tokens.is_empty() && self.is_sound(&["auth"]);
        match listen.parse::<SocketAddr>() {
            Err(_) => {
                let fault = format!("{listen:?} is not an address; write it like \"127.0.0.1:3831\"");
                self.add(&path, fault);
            }
            Ok(address) if is_open && !address.ip().is_loopback() => {
                let fault = format!(
                    "{address} can be reached from other machines, and no token is asked for; add [[auth.tokens]] to \
                     the configuration, or listen on 127.0.0.1"
                );
                self.add(&path, fault);
            }
            Ok(address) if address.port() != 0 && config.node.address().parse() == Ok(address) => {
                self.add(
                    &path,
                    "the node listens there itself; give another port, or leave it out to have both at one",
                );
            }
            Ok(_) => {}
        }
    }

    fn sinks_and_topics(&mut self) {
        let config = self.config;
        for (key, fault) in config.sinks_by_api.faults() {
            self.add(&["sinks_by_api", key], fault);
        }
        let (sinks, faults) =
            SinkRegistry::of_good_ones(&config.sinks, &(Arc::new(SystemClock) as _), &config.store.namespace());
        for (name, fault) in &faults {
            self.add_at(&["sinks", name], fault.key, fault.text.clone());
        }
        for name in config.sinks.keys() {
            if name.trim().is_empty() {
                self.add(&["sinks", name], "the sink's name is empty; give one");
            }
            if let Err(fault) = refuse_dots("sink name", name) {
                self.add(&["sinks", name], fault.to_string());
            }
        }
        let sinks = CheckedSinks { sinks: &sinks, faulty: &faults };
        for (name, topic) in &config.topics {
            self.topic(&["topics", name], TopicName::new(name).ok(), topic, &sinks);
        }
        for (name, pattern) in &config.topic_patterns {
            self.topic(&["topics", name], first_message::example_of(name).ok(), &pattern.config, &sinks);
        }
        self.topic(&["topics_default"], TopicName::new("x").ok(), &config.topics_default.pattern.config, &sinks);
    }

    /// Checks the settings of a topic in the section `path`; `name`: its own, or one that it may have.
    fn topic(&mut self, path: &[&str], name: Option<TopicName>, topic: &TopicConfig, sinks: &CheckedSinks<'_>) {
        for fault in topic.faults() {
            self.add(&[path, &fault.settings[..1]].concat(), fault.text);
        }
        let Some(sink) = &topic.sink else { return };
        let path = [path, &["sink"]].concat();
        let Some(named) = self.config.sinks.get(&sink.name) else {
            if self.is_sound(&["sinks", &sink.name]) {
                self.add(&path, format!("no [sinks.{}] is configured", sink.name));
            }
            return;
        };
        if SinkConfig::is_in_place(named) && self.is_unshared() {
            self.add(&path, format!("it {IN_PLACE_NEEDS_STREAMS}"));
        }
        let is_good = !sinks.faulty.iter().any(|(faulty, _)| *faulty == sink.name);
        if let (true, Some(name)) = (is_good, name) {
            let bound = sinks.sinks.bind(&name, sink).map_err(|fault| fault.to_string());
            let checked = |bound: Arc<dyn Sink>| check_delivery(topic.delivery, &*bound).map_err(str::to_owned);
            if let Err(fault) = bound.and_then(checked) {
                self.add(&path, fault);
            }
        }
    }
}
