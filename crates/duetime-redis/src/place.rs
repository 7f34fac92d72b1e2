//! Which server a key is on, as far as known without asking.

use duetime_core::Place;
use futures::FutureExt;

use crate::link::Link;
use crate::topology::Topology;

impl Link {
    /// The server of `key` at present. All keys have one place where there is one server, and until the
    /// masters of a cluster are known. Waits for nobody.
    #[must_use]
    pub fn place_of(&self, key: &[u8]) -> Place {
        match self.topology() {
            Topology::Standalone(_) | Topology::Sentinel(_) => Place::default(),
            // A slot whose master is known is answered without a wait.
            Topology::Cluster(_) => match self.topology().node(Some(key)).now_or_never() {
                Some(Ok(node)) => Place::of_address(&node.name),
                _ => Place::default(),
            },
        }
    }
}
