//! What is given to `duetime import`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use duetime_import::{DrainKind, Kind, ScoreUnit, Source, SourceOptions};

use crate::connection::{NodeArgs, read_delay};

/// What scores of a plain sorted set count.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Unit {
    /// Seconds since the Unix epoch, with or without a fraction.
    S,
    /// Milliseconds.
    Ms,
}

/// Messages to bring in.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The topic.
    pub(super) topic: String,
    /// Lines of `duetime export`, or messages as the API takes them, one JSON object a line; - for standard input.
    #[arg(value_name = "FILE", default_value = "-", conflicts_with = "from")]
    pub(super) file: String,
    /// Another system, and the Redis that it is in: redis://, rediss://, redis-sentinel:// or redis-cluster://. Nothing
    /// is changed there. Or rabbitmq-dlx amqp://… or beanstalkd beanstalkd://…: what waits there is taken out, each
    /// message once the topic has it. @FILE as URL: the file has it, and no list of processes shows its password.
    #[arg(long, num_args = 2, action = clap::ArgAction::Set, value_names = ["KIND", "URL"])]
    pub(super) from: Option<Vec<String>>,
    /// Of --from: the queue, or the tube.
    #[arg(long, requires = "from", visible_alias = "tube")]
    pub(super) queue: Option<String>,
    /// Of --from rabbitmq-dlx: the x-message-ttl of the queue, for messages that have no expiration of their own, or a
    /// longer one.
    #[arg(long, requires = "from", value_name = "DURATION", value_parser = read_delay)]
    pub(super) ttl: Option<Duration>,
    /// Of --from: what the system's keys begin with, if that was set to something else than is usual.
    #[arg(long, requires = "from")]
    pub(super) prefix: Option<String>,
    /// Of --from zset: the sorted set of ids with their due times.
    #[arg(long, requires = "from")]
    pub(super) key: Option<String>,
    /// Of --from zset: the hash with the payload of each id; without it a member is id and payload.
    #[arg(long, requires = "from", value_name = "KEY")]
    pub(super) payloads: Option<String>,
    /// Of --from zset: what the scores count, seconds if absent.
    #[arg(long, requires = "from")]
    pub(super) unit: Option<Unit>,
    /// Take dead letters of a file too: they are scheduled anew.
    #[arg(long, conflicts_with = "from")]
    pub(super) dead: bool,
    /// Count, and say what would be refused and why; nothing is enqueued.
    #[arg(long, conflicts_with = "verify")]
    pub(super) dry_run: bool,
    /// Read the source again at the end, and see that each of its messages is in the topic, the same.
    #[arg(long)]
    pub(super) verify: bool,
    /// Messages a second at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// Write what was refused to the end of this file, one JSON object a line, with why; it can be imported when it is
    /// put right.
    #[arg(long, value_name = "FILE")]
    pub(super) refused: Option<PathBuf>,
    /// How long a node that does not answer, or refuses for the moment, is asked again.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = read_delay)]
    pub(super) retry_for: Duration,
    #[command(flatten)]
    pub(super) connection: NodeArgs,
}

impl ImportArgs {
    /// The kind and the URL of the other system.
    pub(super) fn other(&self) -> Option<(&str, &str)> {
        self.from.as_deref().and_then(|from| Some((from.first()?.as_str(), from.get(1)?.as_str())))
    }

    /// Reads the URL of the other system, where a file has it.
    pub(super) fn read_url(&mut self) -> anyhow::Result<()> {
        if let Some(url) = self.from.as_mut().and_then(|from| from.get_mut(1))
            && let Some(file) = url.strip_prefix('@')
        {
            let text = std::fs::read_to_string(file).with_context(|| format!("reading the URL of --from in {file}"))?;
            *url = text.trim().to_owned();
        }
        Ok(())
    }

    pub(super) fn options(&self) -> SourceOptions {
        SourceOptions {
            queue: self.queue.clone(),
            prefix: self.prefix.clone(),
            key: self.key.clone(),
            payloads: self.payloads.clone(),
            unit: self.unit.map(|unit| match unit {
                Unit::S => ScoreUnit::Seconds,
                Unit::Ms => ScoreUnit::Millis,
            }),
            ttl: self.ttl,
        }
    }

    pub(super) fn source(&self) -> anyhow::Result<Option<Source>> {
        let Some((word, url)) = self.other() else { return Ok(None) };
        let kind = Kind::named(word).with_context(|| {
            let known = [&Kind::WORDS[..], &DrainKind::WORDS].concat().join(", ");
            // A URL has a password in it.
            match word.contains("://") {
                true => format!("--from has its URL first; give one of {known}, and then the URL"),
                false => format!("--from {word} is not known; give one of {known}"),
            }
        })?;
        Ok(Some(Source::open(kind, url, &self.options())?))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: ImportArgs,
    }

    #[test]
    fn the_password_of_a_url_is_neither_shown_nor_typed() {
        let of = |kind: &str, url: &str| Typed::try_parse_from(["import", "mails", "--from", kind, url]).unwrap().args;
        let swapped = of("redis://:secret@h:1", "bullmq").source().unwrap_err().to_string();
        assert!(swapped.contains("URL first") && !swapped.contains("secret"), "{swapped}");
        assert!(of("sqs", "redis://h:1").source().unwrap_err().to_string().contains("--from sqs is not known"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "redis://:secret@h:1\n").unwrap();
        let mut args = of("bullmq", &format!("@{}", file.path().display()));
        args.read_url().unwrap();
        assert_eq!(args.other(), Some(("bullmq", "redis://:secret@h:1")));
    }
}
