//! The commands: one file per family. Each answers whether all went well; errors are for people.

pub mod backup;
pub mod bulk;
pub mod check_config;
pub mod consume;
pub mod dead;
pub mod enqueue;
pub mod events;
pub mod find;
pub mod forecast;
pub mod list;
pub mod man;
pub mod message;
pub mod monitoring;
pub mod observe;
pub mod output;
pub mod pause;
pub mod settings;
pub mod shards;
pub mod sink;
pub mod sizing;
pub mod token;
pub mod top;
pub mod top_screen;
pub mod topic;
