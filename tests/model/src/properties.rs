//! What must hold in every state, and that a commit is reached.

use stateright::{Model, Property};

use crate::settings::{Settings, home};
use crate::world::{World, Wrong};

fn not_wrong(world: &World, wrong: Wrong) -> bool {
    world.wrong != Some(wrong)
}

fn nothing_lost(_: &Settings, world: &World) -> bool {
    world
        .told
        .iter()
        .zip(0..)
        .all(|(told, life)| !told.enqueued || told.removed || world.living_copies(told.id, Some(life)) > 0)
}

fn one_living_copy(_: &Settings, world: &World) -> bool {
    world.told.iter().all(|told| world.living_copies(told.id, None) <= 1)
}

fn one_delivery(_: &Settings, world: &World) -> bool {
    world.told.iter().all(|told| told.claims <= 1 + told.expired + world.failed_over)
}

fn nothing_stranded(settings: &Settings, world: &World) -> bool {
    if world.authority.moving {
        return true;
    }
    let shards = world.authority.shards(settings);
    world.shards.iter().enumerate().all(|(at, shard)| {
        shard.primary.outbox.is_none() && shard.primary.items.keys().all(|id| home(*id, shards) == at)
    })
}

fn is_committed(settings: &Settings, world: &World) -> bool {
    !world.authority.moving && usize::from(world.authority.epoch) == settings.plan.len()
}

/// Where nobody can do anything any more, the last resize is committed.
fn no_dead_end(settings: &Settings, world: &World) -> bool {
    if is_committed(settings, world) || world.wrong.is_some() {
        return true;
    }
    let mut steps = Vec::new();
    settings.actions(world, &mut steps);
    steps.into_iter().any(|step| settings.next_state(world, step).is_some())
}

/// The properties that apply to these settings.
#[must_use]
pub fn all(settings: &Settings) -> Vec<Property<Settings>> {
    let mut all = vec![
        Property::always("no acknowledged message without a copy", nothing_lost),
        Property::sometimes("the last resize is committed", is_committed),
        Property::always("there is always a way on", no_dead_end),
    ];
    // Without a replica to wait for, a failover may bring a taken copy back beside the one that was
    // put: a duplicate that the failover explains.
    if settings.wait_for_take {
        all.extend([
            Property::always("an id never lives twice", one_living_copy),
            Property::always("one delivery unless a claim expired", one_delivery),
            Property::always("nothing is stranded after a commit", nothing_stranded),
            Property::always("no claim after an acknowledged cancel", |_, world| {
                not_wrong(world, Wrong::ClaimedAfterCancel)
            }),
            Property::always("unknown only if it was not there", |_, world| {
                not_wrong(world, Wrong::UnknownThoughThere)
            }),
            Property::always("an ack removes only its own life", |_, world| not_wrong(world, Wrong::AckOfAnotherLife)),
            Property::always("a valid receipt is never refused", |_, world| {
                not_wrong(world, Wrong::ValidReceiptRefused)
            }),
        ]);
    }
    all
}
