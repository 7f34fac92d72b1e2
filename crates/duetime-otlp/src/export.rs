//! The loop that sends spans: in batches, one call at a time.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::Clock;
use duetime_metrics::{Meters, SpanMeters};
use opentelemetry::KeyValue;
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::settings::{Protocol, Settings};
use crate::spans::Spans;

/// A collector that takes nothing is logged at most this often.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What waits to be sent, and to whom.
#[derive(Debug)]
struct SpanQueue {
    from: mpsc::Receiver<SpanData>,
    batch: Vec<SpanData>,
    exporter: SpanExporter,
    warned: Option<Instant>,
}

/// The loop that sends spans: in batches, one call at a time. Copies share one queue, so that the loop can be started
/// again.
#[derive(Clone, Debug)]
pub struct Export {
    queue: Arc<Mutex<SpanQueue>>,
    batch_max: usize,
    delay: Duration,
    meters: SpanMeters,
}

impl Export {
    /// What records deliveries, and the loop that sends them. Opens no connection.
    ///
    /// # Errors
    ///
    /// A sentence that says which variable is wrong.
    pub fn new(
        settings: &Settings,
        node: &str,
        version: &'static str,
        clock: Arc<dyn Clock>,
        meters: &Meters,
    ) -> Result<(Arc<Spans>, Self), String> {
        let exporter = match settings.protocol {
            Protocol::Http => SpanExporter::builder().with_http().build(),
            Protocol::Grpc => grpc(),
        };
        let mut exporter = exporter.map_err(|error| {
            format!("the variables OTEL_EXPORTER_OTLP_… cannot be used: {}", without_values(error.to_string()))
        })?;
        let own = [KeyValue::new("service.instance.id", node.to_owned()), KeyValue::new("service.version", version)];
        let mut resource = Resource::builder().with_attributes(own);
        if std::env::var("OTEL_SERVICE_NAME").is_err() && !named_by_attributes() {
            resource = resource.with_service_name("duetime");
        }
        exporter.set_resource(&resource.build());
        let (to, from) = mpsc::channel(settings.queue);
        let meters = meters.spans();
        let spans = Spans::new(settings.ratio, version, to, clock, meters.clone());
        let queue = SpanQueue { from, batch: Vec::new(), exporter, warned: None };
        let queue = Arc::new(Mutex::new(queue));
        Ok((Arc::new(spans), Self { queue, batch_max: settings.batch, delay: settings.delay, meters }))
    }

    /// Sends until `stop`, then what is there.
    pub async fn run(self, stop: CancellationToken) {
        let mut queue = self.queue.lock().await;
        let queue = &mut *queue;
        loop {
            let stopped = self.fill(queue, &stop).await;
            while !queue.batch.is_empty() {
                self.send(queue).await;
                if stopped {
                    self.take(queue);
                }
            }
            if stopped {
                return;
            }
        }
    }

    /// Gathers a batch: until it is full, or the first span in it has waited long enough. Answers whether to stop.
    async fn fill(&self, queue: &mut SpanQueue, stop: &CancellationToken) -> bool {
        let mut until = None;
        while queue.batch.len() < self.batch_max {
            let most = self.batch_max - queue.batch.len();
            let waits = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.take(queue);
                    return true;
                }
                taken = queue.from.recv_many(&mut queue.batch, most) => {
                    if taken == 0 {
                        // Nobody is left who could record anything.
                        stop.cancelled().await;
                        return true;
                    }
                    until = until.or(Some(Instant::now() + self.delay));
                }
                () = waits => return false,
            }
        }
        false
    }

    /// What is there, without waiting.
    fn take(&self, queue: &mut SpanQueue) {
        while queue.batch.len() < self.batch_max
            && let Ok(span) = queue.from.try_recv()
        {
            queue.batch.push(span);
        }
    }

    async fn send(&self, queue: &mut SpanQueue) {
        let batch = std::mem::take(&mut queue.batch);
        let spans = batch.len() as u64;
        match queue.exporter.export(batch).await {
            Ok(()) => self.meters.exported.inc_by(spans),
            Err(error) => {
                self.meters.failed.inc_by(spans);
                if queue.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
                    queue.warned = Some(Instant::now());
                    warn!(spans, %error, "the collector did not take spans, they are dropped and counted");
                }
            }
        }
    }
}

/// Unless its address begins with `http://`, the collector is believed if the authorities of the system vouch for it, as
/// over HTTP.
fn grpc() -> Result<SpanExporter, ExporterBuildError> {
    let variables = crate::settings::ADDRESSES;
    let given = variables.into_iter().filter_map(|name| std::env::var(name).ok()).find(|address| !address.is_empty());
    let builder = SpanExporter::builder().with_tonic();
    if given.is_some_and(|address| !address.starts_with("http://")) {
        return builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots()).build();
    }
    builder.build()
}

/// An address may have a password in it, and headers have tokens.
fn without_values(mut text: String) -> String {
    for name in ["ENDPOINT", "TRACES_ENDPOINT", "HEADERS", "TRACES_HEADERS"] {
        if let Ok(value) = std::env::var(format!("OTEL_EXPORTER_OTLP_{name}"))
            && !value.is_empty()
        {
            text = text.replace(&value, "(not shown)");
        }
    }
    text
}

fn named_by_attributes() -> bool {
    let attributes = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    attributes.split(',').any(|pair| pair.trim_start().starts_with("service.name="))
}
