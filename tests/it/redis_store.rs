//! The store contract on a real redis-server.

mod by_hand;
mod layout;
mod lives;
mod streamed;

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::Store;
use duetime_metrics::Meters;
use duetime_settings::{ClientTls, PemFile};
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::conformance::store::{StoreFactory, run_all};
use parking_lot::Mutex;

use crate::redis_faults::server::Server;

/// Redis with nothing in it, which ends with its test.
#[derive(Default)]
struct FreshRedis {
    running: Mutex<Vec<Server>>,
}

async fn connect(config: RedisStoreConfig) -> Arc<dyn Store> {
    RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
}

#[async_trait]
impl StoreFactory for FreshRedis {
    async fn store(&self) -> Arc<dyn Store> {
        let server = Server::start(&["--appendonly", "no"]).await;
        let config = RedisStoreConfig { url: server.url().into(), ..RedisStoreConfig::default() };
        self.running.lock().push(server);
        connect(config).await
    }
}

duetime_testkit::store_conformance!(FreshRedis::default());

/// Redis that speaks TLS alone, to a user who may do no more than the store needs.
struct GuardedRedis {
    config: RedisStoreConfig,
}

#[async_trait]
impl StoreFactory for GuardedRedis {
    async fn store(&self) -> Arc<dyn Store> {
        connect(self.config.clone()).await
    }
}

/// An authority and a certificate for localhost, as PEM files in `folder`.
fn certificates(folder: &std::path::Path) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, authority_key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

/// The rights that docs/OPERATIONS.md gives the user of a node, word for word.
pub fn documented_rights() -> String {
    let text = include_str!("../../docs/OPERATIONS.md");
    let row = text.lines().find(|line| line.starts_with("| ACL user |")).expect("the row of the rights");
    row.split('`').nth(1).expect("the rights").replace("\\|", "|")
}

#[tokio::test]
async fn the_whole_contract_holds_over_tls_for_a_user_of_few_rights() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("cert.pem"), path("key.pem"));
    let rights = documented_rights();
    let mut arguments = vec![
        "--appendonly",
        "no",
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
        "--user",
        "ann",
        "on",
        ">s3cret",
    ];
    arguments.extend(rights.split(' '));
    let server = Server::start_tls(&arguments).await;
    let config = RedisStoreConfig {
        url: format!("rediss://ann:s3cret@localhost:{}", server.port).into(),
        tls: ClientTls::trusting(Some(PemFile::new(ca))),
        ..RedisStoreConfig::default()
    };
    run_all(&GuardedRedis { config: config.clone() }).await;

    let stranger = RedisStoreConfig { tls: ClientTls::default(), retry_for: std::time::Duration::ZERO, ..config };
    let refused = RedisStore::connect(stranger, Arc::new(Meters::new())).await.unwrap_err();
    assert!(!refused.to_string().contains("s3cret"), "{refused}");
}
