//! Rules of the repository that a machine keeps.
//!
//! Each rule collects everything that breaks it and says how to fix it, so that one run names all.

mod absent;
mod crates;
mod docs;
mod imports;
#[path = "../stable/kept.rs"]
mod kept;
mod pages;
mod repo;
mod runs;
mod secrets;
mod settings;
mod shape;
mod stable;
mod waits;
mod words;
