//! One file per system: its keys, its entries, and what is left where it is.

mod asynq;
mod bullmq;
mod celery;
mod hdt3213;
mod rq;
mod sidekiq;
mod zset;

use crate::layout::Layout;
use crate::options::{Kind, SourceError, SourceOptions, none_of};

pub(crate) fn layout(kind: Kind, options: &SourceOptions) -> Result<Box<dyn Layout>, SourceError> {
    let is_zset = kind == Kind::Zset;
    none_of([
        ("--queue", is_zset && options.queue.is_some()),
        ("--prefix", (is_zset || kind == Kind::Hdt3213) && options.prefix.is_some()),
        ("--key", !is_zset && options.key.is_some()),
        ("--payloads", !is_zset && options.payloads.is_some()),
        ("--unit", !is_zset && options.unit.is_some()),
        ("--ttl", options.ttl.is_some()),
    ])?;
    Ok(match kind {
        Kind::Zset => Box::new(zset::Zset::new(options)?),
        Kind::BullMq => Box::new(bullmq::BullMq::new(options)?),
        Kind::Hdt3213 => Box::new(hdt3213::DelayQueue::new(options)?),
        Kind::Sidekiq => Box::new(sidekiq::Sidekiq::new(options)),
        Kind::Asynq => Box::new(asynq::Asynq::new(options)?),
        Kind::CeleryRedis => Box::new(celery::Celery::new(options)),
        Kind::Rq => Box::new(rq::Rq::new(options)?),
    })
}
