//! A gate before a broker: TLS, and the login that Kafka's protocol has, so that a broker without either can be
//! reached like one with both.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, Mac as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) user: &'static str,
    pub(super) password: &'static str,
}

/// A gate before a broker: TLS, and the login that Kafka's protocol has, so that a broker without either can be
/// reached like one with both. Ends when dropped.
pub(super) struct Gate {
    pub(super) port: u16,
    accepting: JoinHandle<()>,
}

impl Gate {
    /// Before the broker on `port`. `certificates`: the folder with those of the server; TLS is spoken then.
    pub(super) async fn before(port: u16, certificates: Option<&Path>, login: Option<Login>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let tls = certificates.map(acceptor);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, login) = (tls.clone(), login.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => pass(tls.accept(client).await.ok()?, port, login).await,
                        None => pass(client, port, login).await,
                    }
                });
            }
        });
        Self { port: own, accepting }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    let open = |name: &str| BufReader::new(File::open(folder.join(name)).unwrap());
    let chain = CertificateDer::pem_reader_iter(open("server.pem")).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_reader(open("server.key")).unwrap();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
}

async fn pass<C: AsyncRead + AsyncWrite + Unpin>(mut client: C, port: u16, login: Option<Login>) -> Option<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    if let Some(login) = login {
        let_in(&mut client, &mut server, &login).await?;
    }
    copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
}

async fn take<C: AsyncRead + Unpin>(from: &mut C) -> Option<Vec<u8>> {
    let length = from.read_i32().await.ok()?;
    let mut frame = vec![0; usize::try_from(length).ok()?];
    from.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn put<C: AsyncWrite + Unpin>(to: &mut C, frame: &[u8]) -> Option<()> {
    to.write_i32(i32::try_from(frame.len()).ok()?).await.ok()?;
    to.write_all(frame).await.ok()?;
    to.flush().await.ok()
}

/// What a client asks before it is let in.
const API_VERSIONS: i16 = 18;
const SASL_HANDSHAKE: i16 = 17;
const SASL_AUTHENTICATE: i16 = 36;
/// What it gets if it is not.
const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
const SASL_AUTHENTICATION_FAILED: i16 = 58;
const MECHANISMS: [&str; 2] = ["PLAIN", "SCRAM-SHA-256"];

fn number(frame: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i16).to_be_bytes(), text.as_bytes()].concat()
}

/// Answers for the broker until the client has logged in; `None`: it may not.
async fn let_in<C: AsyncRead + AsyncWrite + Unpin>(
    client: &mut C,
    server: &mut TcpStream,
    login: &Login,
) -> Option<()> {
    let mut scram = None;
    let mut mechanism = String::new();
    loop {
        let request = take(client).await?;
        let (api, version) = (number(&request, 0)?, number(&request, 2)?);
        let body = request.get(10 + usize::try_from(number(&request, 8)?).ok()?..)?;
        let mut answer = request[4..8].to_vec();
        match api {
            API_VERSIONS => {
                put(server, &request).await?;
                answer = take(server).await?;
            }
            SASL_HANDSHAKE => {
                mechanism = String::from_utf8(body.get(2..)?.to_vec()).ok()?;
                let known = MECHANISMS.contains(&mechanism.as_str());
                answer.extend(if known { 0 } else { UNSUPPORTED_SASL_MECHANISM }.to_be_bytes());
                answer.extend((MECHANISMS.len() as i32).to_be_bytes());
                MECHANISMS.iter().for_each(|name| answer.extend(text(name)));
            }
            SASL_AUTHENTICATE => {
                let said = String::from_utf8(body.get(4..)?.to_vec()).ok()?;
                let judged = match (mechanism.as_str(), scram.take()) {
                    ("PLAIN", _) if said == format!("\0{}\0{}", login.user, login.password) => {
                        Some((String::new(), true))
                    }
                    ("SCRAM-SHA-256", None) => Scram::first(&said, login).map(|(next, reply)| {
                        scram = Some(next);
                        (reply, false)
                    }),
                    ("SCRAM-SHA-256", Some(begun)) => begun.last(&said, login).map(|reply| (reply, true)),
                    _ => None,
                };
                let (error, why) = if judged.is_some() { (0, "") } else { (SASL_AUTHENTICATION_FAILED, "Go away") };
                let (reply, done) = judged.unwrap_or_default();
                answer.extend(i16::to_be_bytes(error));
                answer.extend(text(why));
                answer.extend((reply.len() as i32).to_be_bytes());
                answer.extend(reply.as_bytes());
                if version > 0 {
                    answer.extend([0; 8]);
                }
                put(client, &answer).await?;
                if done {
                    return Some(());
                }
                continue;
            }
            _ => return None,
        }
        put(client, &answer).await?;
    }
}

/// The server's side of RFC 5802, begun.
struct Scram {
    /// What was said so far, without the channel binding.
    said: String,
    nonce: String,
}

const SALT: &[u8] = b"salt of the tests";
const ITERATIONS: u32 = 4096;

fn mac(key: &[u8], data: &[u8]) -> [u8; 32] {
    Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(data).finalize().into_bytes().into()
}

fn xor(one: [u8; 32], other: &[u8]) -> [u8; 32] {
    std::array::from_fn(|n| one[n] ^ other[n])
}

impl Scram {
    fn first(said: &str, login: &Login) -> Option<(Self, String)> {
        let bare = said.strip_prefix("n,,")?;
        let (user, nonce) = bare.strip_prefix("n=")?.split_once(",r=")?;
        let nonce = format!("{nonce}and-ours");
        let reply = format!("r={nonce},s={},i={ITERATIONS}", BASE64_STANDARD.encode(SALT));
        (user == login.user).then(|| (Self { said: format!("{bare},{reply}"), nonce }, reply))
    }

    fn last(self, said: &str, login: &Login) -> Option<String> {
        let (before, proof) = said.split_once(",p=")?;
        let proof = BASE64_STANDARD.decode(proof).ok().filter(|proof| proof.len() == 32)?;
        let mut round = mac(login.password.as_bytes(), &[SALT, &1_u32.to_be_bytes()].concat());
        let mut salted = round;
        for _ in 1..ITERATIONS {
            round = mac(login.password.as_bytes(), &round);
            salted = xor(salted, &round);
        }
        let all = format!("{},{before}", self.said);
        let client_key = mac(&salted, b"Client Key");
        let signature = mac(&Sha256::digest(client_key), all.as_bytes());
        let good = before == format!("c=biws,r={}", self.nonce) && xor(signature, &proof) == client_key;
        good.then(|| format!("v={}", BASE64_STANDARD.encode(mac(&mac(&salted, b"Server Key"), all.as_bytes()))))
    }
}
