//! One file per system: its keys, its entries, and what is left where it is.

mod asynq;
mod bullmq;
mod celery;
mod hdt3213;
mod rq;
mod sidekiq;
mod zset;

use crate::source::{Kind, Layout, SourceError, SourceOptions};

/// An option that a kind cannot do without.
fn needed<'a>(value: &'a Option<String>, option: &str, what: &str) -> Result<&'a str, SourceError> {
    let lacking = || SourceError::Option(format!("{option} is missing; give {what}"));
    value.as_deref().filter(|text| !text.is_empty()).ok_or_else(lacking)
}

/// Refuses options that a kind does not know.
fn none_of(options: [(&str, &Option<String>); 2]) -> Result<(), SourceError> {
    match options.into_iter().find(|(_, value)| value.is_some()) {
        Some((name, _)) => Err(SourceError::Option(format!("{name} is not for this kind; leave it out"))),
        None => Ok(()),
    }
}

pub(crate) fn layout(kind: Kind, options: &SourceOptions) -> Result<Box<dyn Layout>, SourceError> {
    if kind == Kind::Zset {
        none_of([("--queue", &options.queue), ("--prefix", &options.prefix)])?;
        return Ok(Box::new(zset::Zset::new(options)?));
    }
    none_of([("--key", &options.key), ("--payloads", &options.payloads)])?;
    Ok(match kind {
        Kind::Zset => unreachable!("it is above"),
        Kind::BullMq => Box::new(bullmq::BullMq::new(options)?),
        Kind::Hdt3213 => Box::new(hdt3213::DelayQueue::new(options)?),
        Kind::Sidekiq => Box::new(sidekiq::Sidekiq::new(options)),
        Kind::Asynq => Box::new(asynq::Asynq::new(options)?),
        Kind::CeleryRedis => Box::new(celery::Celery::new(options)),
        Kind::Rq => Box::new(rq::Rq::new(options)?),
    })
}
