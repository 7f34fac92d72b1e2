//! Tests of the whole engine on the reference store, in time that is moved.

mod consumers;
mod delivery;
mod doubles;
mod drain;
mod house;
mod idle;
mod outage;
mod silent_server;
mod store_outage;
mod topics;
