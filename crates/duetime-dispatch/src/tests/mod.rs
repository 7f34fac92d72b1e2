//! Tests of the whole engine on a small Redis, in time that is moved.

mod consumers;
mod delivery;
mod doubles;
mod drain;
mod expired;
mod fairness;
mod idle;
mod node;
mod outage;
mod own_visibility;
mod pause;
mod refusals;
mod series;
mod side_by_side;
mod silent_server;
mod store_outage;
mod supervision;
mod topics;
mod who_pays;
