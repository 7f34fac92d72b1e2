//! The TLS of requests to other nodes: whom they trust, by which name, and what they show.
//!
//! Upstream: `peers`.

use std::sync::Arc;

use duetime_settings::ClientPem;
use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Verifies a certificate for one name, whatever the address is that was asked: nodes are asked by addresses that come and
/// go with them.
#[derive(Debug)]
struct NameVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for NameVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// `builder` with what was read of the files, and the name that certificates must have in place of the address.
///
/// # Errors
///
/// A sentence that names the key and the fix.
pub(super) fn with_tls(
    builder: ClientBuilder,
    pem: &ClientPem,
    server_name: Option<&str>,
) -> Result<ClientBuilder, String> {
    if let Some(name) = server_name {
        return Ok(builder.tls_backend_preconfigured(named(pem, name)?));
    }
    let mut builder = builder;
    if let Some(ca) = &pem.ca {
        let trusted = Certificate::from_pem_bundle(ca).map_err(|error| format!("ca_file: {error}"))?;
        builder = builder.tls_certs_only(trusted);
    }
    if let Some((cert, key)) = &pem.identity {
        let whole = [cert, &b"\n"[..], key].concat();
        builder = builder.identity(Identity::from_pem(&whole).map_err(|error| format!("cert_file: {error}"))?);
    }
    Ok(builder)
}

fn named(pem: &ClientPem, name: &str) -> Result<ClientConfig, String> {
    let certificates = |key: &str, pem: &[u8]| {
        let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        read.map_err(|error| format!("{key}: {error}"))
    };
    let Some(ca) = &pem.ca else {
        return Err("server_name needs ca_file: the authority that signed the certificate with this name".to_owned());
    };
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| format!("server_name: {name:?} is no name of a server; write one that the certificates have"))?;
    let mut roots = RootCertStore::empty();
    for authority in certificates("ca_file", ca)? {
        roots.add(authority).map_err(|error| format!("ca_file: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| format!("ca_file: {error}"))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NameVerifier { verifier, name }));
    let mut config = match &pem.identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("key_file: {error}"))?;
            let chain = certificates("cert_file", cert)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| format!("cert_file: {error}"))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
