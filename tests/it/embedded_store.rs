//! The store contract on the embedded store.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::Store;
use duetime_store_embedded::EmbeddedStore;
use duetime_testkit::conformance::StoreFactory;
use parking_lot::Mutex;

/// Every store has a folder of its own, as no two may share one.
#[derive(Default)]
pub struct Folders(Mutex<Vec<tempfile::TempDir>>);

#[async_trait]
impl StoreFactory for Folders {
    async fn store(&self) -> Arc<dyn Store> {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&folder.path().join("made"), Default::default()).unwrap();
        self.0.lock().push(folder);
        store
    }

    fn can_move_time(&self) -> bool {
        true
    }
}

duetime_testkit::store_conformance!(Folders::default());
