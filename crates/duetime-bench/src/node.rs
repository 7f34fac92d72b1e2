//! A target that is a topic of a running node, over HTTP.

use std::sync::Arc;

use duetime_core::Clock;

use crate::args::Common;
use crate::straight::Straight;

pub struct Node;

impl Node {
    pub async fn create(common: &Common, _clock: Arc<dyn Clock>) -> anyhow::Result<Straight> {
        anyhow::bail!("{} cannot be measured over HTTP yet; give --store", common.node)
    }
}
