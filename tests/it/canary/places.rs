//! Every place of the configuration that may hold a secret, and for each a secret of its own with every printable
//! character. `tests/tidy` finds a field for a secret that has no row here.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_testkit::violation::violated;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::parrot::Manner;

/// What every part of a secret begins with; the number of its place follows.
const MARK: &str = "kept";
/// The same as numbers, as bytes are shown.
const MARK_BYTES: &str = "107, 101, 112, 116, ";
/// Bytes of an encoded secret that are looked for: a multiple of three, so that what follows changes nothing.
const ENCODED_BYTES: usize = 24;
/// The seed of a user of NATS, from the documentation of its keys.
pub const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

#[derive(Debug)]
pub struct Place {
    /// The file of the field's type, and the field.
    pub field: &'static str,
    /// The configuration around it. `@` stands for the value, `HOST` for the address of the other side, `NAME` for the
    /// name of the sink, `STORE` for the address of a Redis.
    config: &'static str,
    /// What is secret there, made of a text.
    secret: fn(&str) -> String,
    /// What the other side speaks.
    pub speaks: Manner,
    /// The field is the path of a file that holds the secret.
    is_path: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Text,
    File,
    Env,
}

pub const WRITTEN: [Written; 3] = [Written::Text, Written::File, Written::Env];

const fn place(field: &'static str, config: &'static str, speaks: Manner, secret: fn(&str) -> String) -> Place {
    Place { field, config, secret, speaks, is_path: false }
}

const fn path(field: &'static str, config: &'static str, speaks: Manner, secret: fn(&str) -> String) -> Place {
    Place { field, config, secret, speaks, is_path: true }
}

const STORE: &str = "[store]\nretry_for = \"1s\"\nconnect_timeout = \"500ms\"\nurl = @\n";
const SENTINEL: &str = "[store]\nretry_for = \"1s\"\nconnect_timeout = \"500ms\"\nurl = \"redis-sentinel://HOST/m\"\n\
                        sentinel_user = \"u\"\nsentinel_password = @\n";
const REDIS_KEY: &str = "[store]\nretry_for = \"1s\"\nconnect_timeout = \"500ms\"\nurl = \"rediss://HOST/0\"\n\
                         tls = { cert_file = @, key_file = @ }\n";
const ETCD: &str = "[store]\nurl = \"STORE\"\n[ownership]\nmode = \"etcd\"\netcd = [\"http://HOST\"]\n\
                    etcd_user = \"u\"\netcd_password = @\n";
const ETCD_KEY: &str = "[store]\nurl = \"STORE\"\n[ownership]\nmode = \"etcd\"\netcd = [\"https://HOST\"]\n\
                        etcd_tls = { cert_file = @, key_file = @ }\n";
const TOKEN: &str = "[[auth.tokens]]\nname = \"NAME\"\nscopes = [\"admin\"]\nsecret = @\n";
const TOKEN_FILE: &str = "[[auth.tokens]]\nname = \"NAME\"\nscopes = [\"admin\"]\nsecret_file = @\n";
const TOKEN_HASH: &str = "[[auth.tokens]]\nname = \"NAME\"\nscopes = [\"admin\"]\nhash = @\n";
const HTTP_URL: &str = "[sinks.NAME]\ntype = \"http\"\nallow = [\"127.0.0.1\"]\ntimeout = \"500ms\"\nurl = @\n";
const HTTP_HEADER: &str = "[sinks.NAME]\ntype = \"http\"\nallow = [\"127.0.0.1\"]\ntimeout = \"500ms\"\n\
                           url = \"http://HOST/due\"\nheaders = { authorization = @ }\n";
const HTTP_KEY: &str = "[sinks.NAME]\ntype = \"http\"\nallow = [\"127.0.0.1\"]\ntimeout = \"500ms\"\n\
                        url = \"http://HOST/due\"\nsigning_secrets = [@]\n";
const RABBITMQ: &str = "[sinks.NAME]\ntype = \"rabbitmq\"\ntimeout = \"500ms\"\nconnect_timeout = \"500ms\"\nurl = @\n";
const STREAM: &str =
    "[sinks.NAME]\ntype = \"redis-stream\"\ntimeout = \"500ms\"\nconnect_timeout = \"500ms\"\nurl = @\n";
const NATS_URL: &str = "[sinks.NAME]\ntype = \"nats\"\ntimeout = \"500ms\"\nconnect_timeout = \"500ms\"\nurl = @\n";
const NATS_PASSWORD: &str = "[sinks.NAME]\ntype = \"nats\"\ntimeout = \"500ms\"\nconnect_timeout = \"500ms\"\n\
                             url = \"nats://HOST\"\nuser = \"duetime\"\npassword = @\n";
const NATS_TOKEN: &str = "[sinks.NAME]\ntype = \"nats\"\ntimeout = \"500ms\"\nconnect_timeout = \"500ms\"\n\
                          url = \"nats://HOST\"\ntoken = @\n";
const NATS_CREDENTIALS: &str = "[sinks.NAME]\ntype = \"nats\"\ntimeout = \"500ms\"\nconnect_timeout = \"500ms\"\n\
                                url = \"nats://HOST\"\ncredentials_file = @\n";
const KAFKA_PASSWORD: &str = "[sinks.NAME]\ntype = \"kafka\"\ntimeout = \"500ms\"\nconnect_timeout = \"1s\"\n\
                              brokers = \"HOST\"\nsasl = { user = \"duetime\", password = @ }\n";
const KAFKA_PROPERTY: &str = "[sinks.NAME]\ntype = \"kafka\"\ntimeout = \"500ms\"\nconnect_timeout = \"1s\"\n\
                              brokers = \"HOST\"\nproperties = { \"client.rack\" = @ }\n";
const NODE_KEY: &str = "[node]\ntls = { cert = @, key = @ }\n";

/// All of them; the number of a row is in its secret.
pub const PLACES: &[Place] = &[
    place("crates/duetime-store-redis/src/config.rs: url", STORE, Manner::Redis, |text| {
        redis_url("redis://", "HOST/0", text)
    }),
    place("crates/duetime-store-redis/src/config.rs: url", STORE, Manner::Redis, |text| {
        redis_url("redis-cluster://", "HOST,HOST", text)
    }),
    place("crates/duetime-store-redis/src/config.rs: url", STORE, Manner::Redis, |text| {
        redis_url("redis-sentinel://", "HOST/m", text)
    }),
    place("crates/duetime-store-redis/src/config.rs: sentinel_password", SENTINEL, Manner::Redis, str::to_owned),
    place("crates/duetime-ownership/src/etcd/config.rs: password", ETCD, Manner::Raw, str::to_owned),
    path("crates/duetime-settings/src/tls.rs: key_file", REDIS_KEY, Manner::Raw, private_key),
    path("crates/duetime-settings/src/tls.rs: key_file", ETCD_KEY, Manner::Raw, private_key),
    path("crates/duetime-http/src/server/tls.rs: key", NODE_KEY, Manner::Raw, private_key),
    place("crates/duetime-http/src/auth.rs: secret", TOKEN, Manner::Raw, str::to_owned),
    path("crates/duetime-http/src/auth.rs: secret_file", TOKEN_FILE, Manner::Raw, str::to_owned),
    place("crates/duetime-http/src/auth.rs: hash", TOKEN_HASH, Manner::Raw, str::to_owned),
    place("crates/duetime-sinks/src/http/config.rs: url", HTTP_URL, Manner::Raw, |text| {
        format!("http://HOST/due?token={}", escaped(text))
    }),
    place("crates/duetime-sinks/src/http/config.rs: headers", HTTP_HEADER, Manner::Raw, |text| {
        format!("Bearer {text}")
    }),
    place("crates/duetime-sinks/src/http/config.rs: signing_secrets", HTTP_KEY, Manner::Raw, |text| {
        format!("whsec_{}", STANDARD.encode(&text[..60]))
    }),
    place("crates/duetime-sinks/src/rabbitmq/config.rs: url", RABBITMQ, Manner::Raw, |text| {
        redis_url("amqp://", "HOST/v", text)
    }),
    place("crates/duetime-sinks/src/redis_stream.rs: url", STREAM, Manner::Redis, |text| {
        redis_url("redis://", "HOST/0", text)
    }),
    place("crates/duetime-sinks/src/nats/config.rs: url", NATS_URL, Manner::Nats, |text| {
        redis_url("nats://", "HOST", text)
    }),
    place("crates/duetime-sinks/src/nats/config.rs: password", NATS_PASSWORD, Manner::Nats, str::to_owned),
    place("crates/duetime-sinks/src/nats/config.rs: token", NATS_TOKEN, Manner::Nats, str::to_owned),
    path("crates/duetime-sinks/src/nats/config.rs: credentials_file", NATS_CREDENTIALS, Manner::Nats, credentials),
    place("crates/duetime-sinks/src/kafka/config.rs: password", KAFKA_PASSWORD, Manner::Raw, str::to_owned),
    place("crates/duetime-sinks/src/kafka/config.rs: properties", KAFKA_PROPERTY, Manner::Raw, str::to_owned),
];

/// As it stands in an address.
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// With the secret as a password.
fn redis_url(scheme: &str, rest: &str, text: &str) -> String {
    format!("{scheme}u:{}@{rest}", escaped(text))
}

/// What looks like a private key and is none.
fn private_key(text: &str) -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
}

/// What users of NATS are given; its token may have letters and digits only.
fn credentials(text: &str) -> String {
    let (dashes, word) = ("------", &text[..MARK.len() + 2]);
    format!(
        "{dashes}JWT{dashes}\n{word}.jwt\n{dashes}END{dashes}\n\n{dashes}SEED{dashes}\n{SEED}\n{dashes}END{dashes}\n"
    )
}

/// The secret of a place: every printable character, so that whatever is left of it has a mark.
pub fn secret(place: usize) -> String {
    let odd = (' '..='~').filter(|c| !c.is_ascii_alphanumeric());
    let parts: String = odd.map(|odd| format!("{MARK}{place:02}{odd}")).collect();
    let plain: String = (' '..='~').filter(char::is_ascii_alphanumeric).collect();
    format!("{parts}{plain}{MARK}{place:02}")
}

impl Place {
    /// Whether it is a place of a sink, whose name is up to us.
    pub fn is_of_a_sink(&self) -> bool {
        self.config.starts_with("[sinks.")
    }

    /// Whether the field is the path of a file that holds the secret.
    pub fn is_path(&self) -> bool {
        self.is_path
    }

    pub fn is_built_in(&self) -> bool {
        cfg!(feature = "kafka") || !self.config.contains("\"kafka\"")
    }

    /// Whether a node can start with it.
    pub fn is_refused(&self) -> bool {
        self.field.contains("nats/config.rs: url") || self.field.ends_with(": hash") || self.field.contains("tls.rs")
    }

    /// The configuration with `text` as the secret, and the variables it needs.
    pub fn configured(&self, place: &At<'_>, how: Written, text: &str) -> (String, Vec<(String, String)>) {
        let secret = (self.secret)(text).replace("HOST", place.host);
        let file = place.folder.join(format!("secret-{}", place.name));
        let variable = format!("VAR_{}", place.name.to_uppercase().replace('-', "_"));
        let mut variables = Vec::new();
        let value = match how {
            _ if self.is_path => {
                std::fs::write(&file, secret).unwrap();
                format!("{file:?}")
            }
            Written::Text => format!("{secret:?}"),
            Written::File => {
                std::fs::write(&file, secret).unwrap();
                format!("{{ file = {file:?} }}")
            }
            Written::Env => {
                variables.push((variable.clone(), secret));
                format!("{{ env = {variable:?} }}")
            }
        };
        (self.around(place, &value), variables)
    }

    /// The configuration with `value` where the secret should be.
    pub fn around(&self, place: &At<'_>, value: &str) -> String {
        let around = self.config.replace("NAME", place.name).replace("HOST", place.host).replace("STORE", place.store);
        around.replace('@', value)
    }

    /// The secret as it is written, of a text that is not escaped.
    pub fn unescaped(&self, place: &At<'_>, text: &str) -> String {
        let whole = (self.secret)("UNESCAPED".repeat(8).as_str());
        if whole.contains("UNESCAPED") {
            whole.replace(&"UNESCAPED".repeat(8), text).replace("HOST", place.host)
        } else {
            text.to_owned()
        }
    }
}

/// Where the other side of a place is, and what it is called.
pub struct At<'a> {
    pub name: &'a str,
    pub host: &'a str,
    pub store: &'a str,
    pub folder: &'a Path,
}

/// Fails for good when `text` has a part of a secret, as it is or in one of the forms that it has on its way.
#[track_caller]
pub fn clean(place: &str, text: &str) {
    let has_number = |at: usize| text[at..].bytes().take(2).filter(u8::is_ascii_digit).count() == 2;
    let plain = text.match_indices(MARK).map(|(at, _)| at).find(|at| has_number(at + MARK.len()));
    let encoded = || {
        (0..PLACES.len()).flat_map(|n| {
            ["", "u:", "\0u\0", "\0duetime\0"]
                .map(|before| STANDARD.encode(&format!("{before}{}", secret(n)).as_bytes()[..ENCODED_BYTES]))
        })
    };
    let at = plain.or_else(|| text.find(MARK_BYTES)).or_else(|| text.find(SEED));
    if let Some(at) = at.or_else(|| encoded().find_map(|form| text.find(&form))) {
        let from = text[..at].rfind('\n').map_or(0, |line| line + 1);
        let line: String = text[from..].chars().take(2_000).collect();
        violated(format!("{place} has a secret: {line}"));
    }
}
