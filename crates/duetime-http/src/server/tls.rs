//! TLS on the listener: certificates are reloaded while the node serves.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use tokio_rustls::TlsAcceptor;
use x509_parser::time::ASN1Time;

/// `node.tls`: where the keys of the listener are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate with those between it and its authority, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Authorities of clients, PEM. Given: a client without a certificate of theirs is refused.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
}

/// The key to blame, and a sentence that names its file.
pub type TlsFault = (&'static str, String);

impl TlsFiles {
    /// All files, to be watched for changes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).map(PathBuf::as_path)
    }

    /// When the certificate ends, in seconds since the Unix epoch. `None`: it cannot be read.
    #[must_use]
    pub fn ends(&self) -> Option<i64> {
        Some(not_after(&self.cert)?.timestamp())
    }

    /// That the certificate is over, by the clock of this machine: no client that looks at it would go on. `None`: it is
    /// not, or cannot be read.
    #[must_use]
    pub fn expired(&self) -> Option<TlsFault> {
        let ends = not_after(&self.cert)?;
        let text = format!("{}: the certificate expired on {ends}; put a new one there", self.cert.display());
        (ends < ASN1Time::now()).then_some(("cert", text))
    }

    fn load(&self) -> Result<ServerConfig, TlsFault> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ("cert", format!("TLS cannot be used: {error}")))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let refused = |error: &dyn Display| ("client_ca", format!("{}: {error}", file.display()));
                let mut roots = RootCertStore::empty();
                for authority in certificates("client_ca", file)? {
                    roots.add(authority).map_err(|error| refused(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| refused(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| ("key", format!("{}: no private key in PEM can be read: {error}", self.key.display())))?;
        let mut config = builder.with_single_cert(certificates("cert", &self.cert)?, key).map_err(|error| {
            ("key", format!("{} and {} do not go together: {error}", self.cert.display(), self.key.display()))
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// When the first certificate of the file ends.
fn not_after(file: &Path) -> Option<ASN1Time> {
    let own = certificates("cert", file).ok()?.into_iter().next()?;
    Some(x509_parser::parse_x509_certificate(&own).ok()?.1.validity().not_after)
}

fn certificates(key: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let read = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| (key, format!("{}: no certificate in PEM can be read: {error}", file.display())))?;
    if read.is_empty() {
        return Err((key, format!("{}: has no certificate in PEM", file.display())));
    }
    Ok(read)
}

/// The keys in use. Clones share them.
#[derive(Clone)]
pub struct Tls(Arc<ArcSwap<ServerConfig>>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The key of [`TlsFiles`], and a sentence that names the file.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsFault> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(files.load()?))))
    }

    /// Reads them again; new connections use what is there now.
    ///
    /// # Errors
    ///
    /// As [`Self::load`], and that the certificate is over; what was read before stays in use.
    pub fn reload(&self, files: &TlsFiles) -> Result<(), TlsFault> {
        files.expired().map_or(Ok(()), Err)?;
        self.0.store(Arc::new(files.load()?));
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.load_full())
    }
}
