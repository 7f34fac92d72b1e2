//! Grafana dashboards and Prometheus rules, generated from the metric table.
//!
//! Every expression takes a metric's name from `duetime_metrics::table`, so that one which is renamed does
//! not compile here and one which is removed cannot stay on a dashboard. Upstream: `duetime dashboards`,
//! `duetime alerts`. Does no I/O: it answers texts.

pub mod alerts;
mod board;
mod boards;
mod expr;
pub mod objective;
mod panel;
mod rules;

pub use alerts::Alert;
pub use board::{Annotation, Board, annotations};
pub use boards::all as boards;
pub use objective::{Objective, Objectives};
pub use panel::Panel;
pub use rules::{Recording, rules};

/// The label `job` under which Prometheus scrapes the nodes, unless the user says otherwise.
pub const JOB: &str = "duetime";
/// Where the runbooks can be read, unless the user says otherwise.
pub const RUNBOOKS: &str = "docs/RUNBOOKS.md";
