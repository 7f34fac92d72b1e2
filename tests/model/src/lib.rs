//! The live resize as a model that is explored exhaustively: every interleaving of clients, movers,
//! crashes, expiries, lagging replicas and failovers of a small world.
//!
//! [`world`] is the state, [`steps`] what anybody can do next, [`mover`] and [`client`] the two
//! kinds of actors, [`properties`] what must hold, [`settings`] the worlds that are explored and
//! the mutations that must be caught. The model knows nothing of Redis: one script is one step.

pub mod client;
pub mod mover;
pub mod properties;
pub mod settings;
pub mod steps;
pub mod world;

pub use settings::{Mutation, Settings};
