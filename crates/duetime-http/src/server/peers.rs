//! Asks the other nodes of the cluster for figures that each of them has of itself alone.
//!
//! A request goes to an address that a node published where nodes share shards, and to no other, for the caller's token
//! goes with it: no address comes from a caller, no redirect is followed, no proxy of the environment is used.
//!
//! Upstream: `routes::cluster`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use duetime_core::Member;
use duetime_settings::{ClientPem, ClientTls};
use futures::StreamExt as _;
use parking_lot::Mutex;
use reqwest::{Client, Url, redirect};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::auth::token_hash::Hash;
use crate::json::problem::Problem;
use crate::server::peer_tls::with_tls;

/// Requests to other nodes that are open at once, of all callers together: as many as one answer asks, so that nodes that
/// are silent for [`NODE_WITHIN`] keep no other from being asked in time.
pub(crate) const ASKED_AT_ONCE: usize = 256;
/// Connections that are kept open to one node.
const IDLE_MAX: usize = 2;
/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Longest wait for the whole answer of one node.
pub(crate) const NODE_WITHIN: Duration = Duration::from_secs(2);
/// Most bytes of one node's answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// An answer about the cluster is given to all who ask the same with the same token for this long.
const CACHED_FOR: Duration = Duration::from_secs(1);
/// Answers that are kept at once.
const CACHED_MAX: usize = 32;
/// A larger answer is not kept.
const CACHED_BYTES_MAX: usize = 2 << 20;

/// An answer, and when it was made.
type CachedAnswer = Option<(Instant, Bytes)>;

/// The other nodes, as this one asks them. Clones share connections and answers.
#[derive(Clone)]
pub struct Peers(Arc<PeersInner>);

struct PeersInner {
    tls: ClientTls,
    /// With what it was made from.
    client: Mutex<Option<(Arc<ClientPem>, Client)>>,
    open: Semaphore,
    /// By token and question. Who asks while an answer is made waits for it.
    answers: Mutex<HashMap<Hash, Arc<tokio::sync::Mutex<CachedAnswer>>>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

impl Default for Peers {
    /// Trusts the public authorities, and shows no certificate.
    fn default() -> Self {
        Self::with(ClientTls::default())
    }
}

fn make_client(pem: &ClientPem, server_name: Option<&str>) -> Result<Client, String> {
    // The second one to install it gets an error, and all is well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("duetime/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_WITHIN)
        .timeout(NODE_WITHIN)
        .pool_max_idle_per_host(IDLE_MAX)
        .redirect(redirect::Policy::none())
        .no_proxy();
    with_tls(builder, pem, server_name)?.build().map_err(|error| error.to_string())
}

/// A member's address as it published it, if it is a plain one.
fn read_address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none();
    is_plain.then_some(url)
}

/// A host that is an IP address; one of IPv4 that is written as one of IPv6 is what it stands for.
fn ip_of(host: &str) -> Option<IpAddr> {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok()?;
    Some(ip.to_canonical())
}

/// Whether a host is the machine itself, whichever that is.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || ip_of(host).is_some_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

/// The address of another node, for a node that listens at `own` (`HOST:PORT`).
///
/// # Errors
///
/// Why it cannot be asked, as the end of a sentence about it.
pub(crate) fn address_of(own: &str, member: &Member) -> Result<Url, &'static str> {
    let published = member.advertise.as_deref().ok_or("publishes no address: set node.advertise there")?;
    let url =
        read_address(published).ok_or("publishes an address that cannot be read: correct node.advertise there")?;
    let own = own.parse::<SocketAddr>().ok();
    if url.host_str().is_some_and(is_loopback) {
        // On another machine it would be that machine's own, and what listens there is not known.
        let Some(own) = own.filter(|own| own.ip().is_loopback()) else {
            return Err("publishes an address of its machine alone: set node.advertise there");
        };
        if url.port_or_known_default() == Some(own.port()) {
            return Err("publishes the address of this node: set node.advertise there");
        }
    }
    Ok(url)
}

/// What a node publishes as its address: what is set, with the port at which it listens where that is an IP address alone;
/// or where it listens, unless that is all addresses of its machine.
#[must_use]
pub fn advertised(set: Option<&str>, listens: SocketAddr, has_tls: bool) -> Option<String> {
    let scheme = if has_tls { "https" } else { "http" };
    match set.map(|set| set.parse::<IpAddr>().map_err(|_| set.trim_end_matches('/').to_owned())) {
        Some(Err(whole)) => Some(whole),
        Some(Ok(ip)) => Some(format!("{scheme}://{}", SocketAddr::new(ip, listens.port()))),
        None => (!listens.ip().is_unspecified()).then(|| format!("{scheme}://{listens}")),
    }
}

/// What is wrong with a `node.advertise`.
#[must_use]
pub fn advertise_fault(set: &str) -> Option<&'static str> {
    let is_all = |host: &str| ip_of(host).is_some_and(|ip| ip.is_unspecified());
    let is_good = match read_address(set) {
        Some(url) => !is_all(url.host_str().unwrap_or_default()),
        None => set.parse::<IpAddr>().is_ok() && !is_all(set),
    };
    (!is_good).then_some(
        "is not an address that other nodes can ask; write http://HOST:PORT or https://HOST:PORT, without a path and a \
         user, or an IP address",
    )
}

impl Peers {
    /// Trusts and shows what `tls` says.
    ///
    /// # Errors
    ///
    /// A sentence that names the key and the fix.
    pub fn new(tls: &ClientTls) -> Result<Self, String> {
        if let Some(fault) = Self::fault(tls) {
            return Err(fault.to_owned());
        }
        let peers = Self::with(tls.clone());
        if *tls != ClientTls::default() {
            peers.client()?;
        }
        Ok(peers)
    }

    /// What makes no sense of `tls`, whatever its files hold, with the fix.
    #[must_use]
    pub fn fault(tls: &ClientTls) -> Option<&'static str> {
        let lacks_ca = tls.server_name.is_some() && tls.ca_file.is_none();
        lacks_ca
            .then_some("server_name needs ca_file: the authority that signed the certificate with this name")
            .or_else(|| tls.fault())
    }

    fn with(tls: ClientTls) -> Self {
        Self(Arc::new(PeersInner {
            tls,
            client: Mutex::default(),
            open: Semaphore::new(ASKED_AT_ONCE),
            answers: Mutex::default(),
        }))
    }

    /// The client with the certificates that were read last.
    fn client(&self) -> Result<Client, String> {
        let PeersInner { tls, client, .. } = &*self.0;
        let pem = tls.read()?;
        let mut current = client.lock();
        if let Some((made_from, client)) = &*current
            && Arc::ptr_eq(made_from, &pem)
        {
            return Ok(client.clone());
        }
        let made = make_client(&pem, tls.server_name.as_deref())?;
        *current = Some((pem, made.clone()));
        Ok(made)
    }

    /// What `url`, of one of the nodes, answers; `take` is called for each piece of it, and false if there is no memory for
    /// so many bytes more.
    ///
    /// # Errors
    ///
    /// What became of the request, as the end of a sentence about the node.
    pub(crate) async fn ask(
        &self,
        url: Url,
        authorization: Option<&HeaderValue>,
        take: impl Fn(usize) -> bool,
    ) -> Result<Vec<u8>, String> {
        let client = self.client().map_err(|error| format!("cannot be asked: {error}"))?;
        let _open = self.0.open.acquire().await.expect("it is never closed");
        let mut request = client.get(url);
        if let Some(token) = authorization {
            request = request.header(header::AUTHORIZATION, token);
        }
        let lost = |error: reqwest::Error| match error {
            error if error.is_timeout() => format!("did not answer within {} s", NODE_WITHIN.as_secs()),
            error if error.is_connect() => "cannot be connected to".to_owned(),
            _ => "broke off its answer".to_owned(),
        };
        let answer = request.send().await.map_err(lost)?;
        if answer.status() != reqwest::StatusCode::OK {
            return Err(format!("answered {}", answer.status().as_u16()));
        }
        let (mut body, mut chunks) = (Vec::new(), answer.bytes_stream());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(lost)?;
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(format!("answered more than {} MiB", ANSWER_BYTES_MAX >> 20));
            }
            if !take(chunk.len()) {
                return Err("answered more than this node has memory for at present".to_owned());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The answer to the question `key`, which `make` makes unless it was made just now.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub(crate) async fn shared(
        &self,
        key: Hash,
        make: impl Future<Output = Result<Bytes, Problem>>,
    ) -> Result<Bytes, Problem> {
        let place = self.place(key);
        let mut kept = place.lock().await;
        if let Some((made, answer)) = &*kept
            && made.elapsed() < CACHED_FOR
        {
            return Ok(answer.clone());
        }
        *kept = None;
        let answer = make.await?;
        *kept = (answer.len() <= CACHED_BYTES_MAX).then(|| (Instant::now(), answer.clone()));
        Ok(answer)
    }

    /// Where the answer to `key` is kept; one of its own where there is no room.
    fn place(&self, key: Hash) -> Arc<tokio::sync::Mutex<CachedAnswer>> {
        let mut answers = self.0.answers.lock();
        if answers.len() >= CACHED_MAX && !answers.contains_key(&key) {
            let is_fresh = |kept: &CachedAnswer| kept.as_ref().is_some_and(|(made, _)| made.elapsed() < CACHED_FOR);
            // What is locked is being made.
            answers.retain(|_, place| place.try_lock().map_or(true, |kept| is_fresh(&kept)));
            if answers.len() >= CACHED_MAX {
                return Arc::default();
            }
        }
        answers.entry(key).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_asked_only_where_it_says_it_can_be() {
        let of = |own: &str, published: Option<&str>| {
            let member = Member { advertise: published.map(str::to_owned), ..Member::default() };
            address_of(own, &member).map(String::from)
        };
        assert_eq!(of("10.0.0.1:3830", Some("https://node-2.example:3830")).unwrap(), "https://node-2.example:3830/");
        assert_eq!(of("127.0.0.1:3830", Some("http://127.0.0.1:3840")).unwrap(), "http://127.0.0.1:3840/");
        for (own, published, why) in [
            ("10.0.0.1:3830", None, "no address"),
            ("10.0.0.1:3830", Some("http://127.0.0.1:3840"), "its machine alone"),
            ("0.0.0.0:3830", Some("http://localhost:3840"), "its machine alone"),
            ("10.0.0.1:3830", Some("http://[::ffff:127.0.0.1]:3840"), "its machine alone"),
            ("10.0.0.1:3830", Some("http://0.0.0.0:3840"), "its machine alone"),
            ("127.0.0.1:3830", Some("http://[::1]:3830"), "the address of this node"),
            ("10.0.0.1:3830", Some("ftp://10.0.0.2"), "cannot be read"),
            ("10.0.0.1:3830", Some("http://user:pass@10.0.0.2:1"), "cannot be read"),
            ("10.0.0.1:3830", Some("http://10.0.0.2:1/elsewhere"), "cannot be read"),
        ] {
            let refused = of(own, published).unwrap_err();
            assert!(refused.contains(why), "{published:?}: {refused}");
        }
    }

    #[test]
    fn a_node_publishes_what_is_set_or_where_it_listens_but_no_wildcard() {
        let of = |set, listens: &str, tls| advertised(set, listens.parse().unwrap(), tls);
        assert_eq!(of(None, "10.0.0.1:3830", false).unwrap(), "http://10.0.0.1:3830");
        assert_eq!(of(None, "[fd00::1]:3830", true).unwrap(), "https://[fd00::1]:3830");
        assert_eq!(of(None, "0.0.0.0:3830", false), None);
        assert_eq!(of(Some("https://node-1.example/"), "0.0.0.0:3830", false).unwrap(), "https://node-1.example");
        assert_eq!(of(Some("10.0.0.1"), "0.0.0.0:3830", true).unwrap(), "https://10.0.0.1:3830");
        assert_eq!(of(Some("fd00::1"), "[::]:3830", false).unwrap(), "http://[fd00::1]:3830");
        for right in ["https://node-1.example:3830", "10.0.0.1", "fd00::1"] {
            assert_eq!(advertise_fault(right), None, "{right}");
        }
        for wrong in [
            "node-1.example:3830",
            "http://0.0.0.0:3830",
            "http://[::]:1",
            "http://a/b",
            "http://u@a",
            "::",
            "::ffff:0.0.0.0",
        ] {
            assert!(advertise_fault(wrong).is_some(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_node_is_known_by_the_name_that_is_set_and_by_the_authority_that_was_read_last() {
        use duetime_testkit::webhook::Webhook;
        let (first, second) = (Webhook::start_tls(), Webhook::start_tls());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let trust = |webhook: &Webhook| std::fs::write(&file, webhook.authority_pem.as_ref().unwrap()).unwrap();
        let tls = |name: Option<&str>| {
            let tls = ClientTls::trusting(Some(duetime_settings::PemFile::new(&file)));
            name.map_or_else(|| tls.clone(), |name| tls.clone().named(name))
        };
        // By its address, which the certificate does not name.
        let ask = async |peers: &Peers, webhook: &Webhook| {
            let url = Url::parse(&format!("https://{}/", webhook.address())).unwrap();
            peers.ask(url, None, |_| true).await.is_ok()
        };
        trust(&first);
        assert!(!ask(&Peers::new(&tls(None)).unwrap(), &first).await);
        assert!(!ask(&Peers::new(&tls(Some("other.example"))).unwrap(), &first).await);
        let named = tls(Some("localhost"));
        let peers = Peers::new(&named).unwrap();
        assert_eq!([ask(&peers, &first).await, ask(&peers, &second).await], [true, false]);
        trust(&second);
        named.renew(|_| Ok(())).unwrap();
        assert_eq!([ask(&peers, &first).await, ask(&peers, &second).await], [false, true]);
        let without = ClientTls::default().named("localhost");
        assert!(Peers::new(&without).is_err_and(|fault| fault.contains("server_name needs ca_file")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_made_once_a_second_for_all_who_ask_the_same() {
        let peers = Peers::default();
        let made = std::sync::atomic::AtomicUsize::new(0);
        let ask = |key: u8| {
            let made = &made;
            peers.shared([key; 32], async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(Bytes::from(made.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string()))
            })
        };
        let all = futures::future::join_all((0..20).map(|_| ask(1))).await;
        assert!(all.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer == "0")), "{all:?}");
        assert_eq!(ask(2).await.unwrap(), "1", "another token, or another question");
        tokio::time::sleep(CACHED_FOR).await;
        assert_eq!(ask(1).await.unwrap(), "2");
        for key in 3..=u8::MAX {
            ask(key).await.unwrap();
            assert!(peers.0.answers.lock().len() <= CACHED_MAX);
        }
    }
}
