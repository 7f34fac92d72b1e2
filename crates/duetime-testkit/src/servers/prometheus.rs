//! A real Prometheus that scrapes nodes, and a real Alertmanager that it sends alerts to.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;

use super::process::{Process, free_port, read, until};

/// Longest wait for a server to serve.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// How often nodes are scraped and rules are evaluated.
const INTERVAL: &str = "250ms";

/// Whether what listens on this port says that it serves: Prometheus answers 503 until it has read what it keeps.
fn serves(port: u16) -> bool {
    super::node::answers(([127, 0, 0, 1], port).into(), "/-/ready", "HTTP/1.1 200")
}

async fn serving(mut process: Process, port: u16, log: &Path) -> Process {
    let done = || process.exited().is_some() || serves(port);
    until(SERVES_WITHIN, || format!("it does not serve:\n{}", read(log)), done).await;
    assert!(process.exited().is_none(), "it ended:\n{}", read(log));
    process
}

fn log_to(command: &mut Command, log: &Path) {
    let file = std::fs::File::create(log).expect("our own folder");
    command.stdout(Stdio::null()).stderr(file);
}

/// A real Prometheus that scrapes nodes, and a real Alertmanager that it sends alerts to. Ends when dropped.
#[derive(Debug)]
pub struct Alertmanager {
    port: u16,
    _process: Process,
    _folder: TempDir,
}

impl Alertmanager {
    /// One with this configuration.
    pub async fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a private folder");
        let (file, log) = (folder.path().join("alertmanager.yml"), folder.path().join("log"));
        std::fs::write(&file, config).expect("our own folder");
        let port = free_port();
        let mut command = Command::new("prometheus-alertmanager");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            // No other Alertmanager is looked for.
            .arg("--cluster.listen-address=");
        log_to(&mut command, &log);
        let process = serving(Process::start(&mut command), port, &log).await;
        Self { port, _process: process, _folder: folder }
    }
}

/// A real Prometheus that scrapes nodes, and a real Alertmanager that it sends alerts to. Ends when dropped.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    _process: Process,
    _folder: TempDir,
}

impl Prometheus {
    /// One that scrapes these addresses (`HOST:PORT`) as the job `duetime`, and evaluates these rules.
    pub async fn start(targets: &[String], rules: &str, alerts_to: Option<&Alertmanager>) -> Self {
        Self::start_every(INTERVAL, targets, rules, alerts_to).await
    }

    /// The same, which scrapes and evaluates after this duration of Prometheus's: many series of a debug build take long.
    pub async fn start_every(
        interval: &str,
        targets: &[String],
        rules: &str,
        alerts_to: Option<&Alertmanager>,
    ) -> Self {
        Self::start_jobs(interval, &[("duetime", targets, rules)], alerts_to).await
    }

    /// The same with jobs of these names, which are a cluster each: the addresses and the rules of each.
    pub async fn start_jobs(
        interval: &str,
        jobs: &[(&str, &[String], &str)],
        alerts_to: Option<&Alertmanager>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a private folder");
        let path = |name: &str| folder.path().join(name);
        let (file, log) = (path("prometheus.yml"), path("log"));
        let alertmanagers = alerts_to.map_or_else(String::new, |to| {
            format!("alerting: {{alertmanagers: [{{static_configs: [{{targets: [\"127.0.0.1:{}\"]}}]}}]}}\n", to.port)
        });
        let scrapes: Vec<String> = jobs
            .iter()
            .map(|(job, targets, _)| format!("{{job_name: {job:?}, static_configs: [{{targets: {targets:?}}}]}}"))
            .collect();
        let config = format!(
            "global: {{scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: {interval}}}\n{alertmanagers}\
             rule_files: [\"*.rules\"]\nscrape_configs: [{}]\n",
            scrapes.join(", ")
        );
        std::fs::write(&file, config).expect("our own folder");
        for (job, _, rules) in jobs {
            std::fs::write(path(&format!("{job}.rules")), rules).expect("our own folder");
        }
        let port = free_port();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        log_to(&mut command, &log);
        let process = serving(Process::start(&mut command), port, &log).await;
        Self { port, _process: process, _folder: folder }
    }

    /// What an expression gives now: the samples of a vector.
    pub async fn query(&self, expr: &str) -> Vec<Value> {
        let base = format!("http://127.0.0.1:{}/api/v1/query", self.port);
        let url = reqwest::Url::parse_with_params(&base, [("query", expr)]).expect("the address is ours");
        // An earlier client of the process may have set it.
        let _ = ring::default_provider().install_default();
        let answer = reqwest::get(url).await.expect("Prometheus answers");
        let answer: Value = answer.json().await.expect("Prometheus answers JSON");
        assert_eq!(answer["status"], "success", "{expr}\n{answer}");
        let result = &answer["data"]["result"];
        match answer["data"]["resultType"].as_str() {
            Some("vector" | "matrix") => result.as_array().cloned().unwrap_or_default(),
            _ => vec![result.clone()],
        }
    }
}
