//! The variables `OTEL_*`, as the specification of OpenTelemetry has them, as far as they are about what we do
//! ourselves: address, headers and time limit of the exporter it reads by itself.

use std::time::Duration;

/// The variables that have the collector's address; the one that is about traces alone wins.
pub(crate) const ADDRESSES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Spans that wait to be sent, unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise.
const QUEUE_SPANS: usize = 2048;
/// The largest queue that may be asked for.
const QUEUE_SPANS_MAX: usize = 1 << 20;
/// Spans sent at once, unless `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` says otherwise.
const BATCH_SPANS: usize = 512;
/// How long a span waits for others, unless `OTEL_BSP_SCHEDULE_DELAY` says otherwise.
const DELAY: Duration = Duration::from_secs(5);

/// How spans are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Protobuf by HTTP, for which a collector listens on port 4318.
    Http,
    /// gRPC, on port 4317.
    Grpc,
}

/// How deliveries are recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How they are sent.
    pub protocol: Protocol,
    /// The share of traces that are recorded, 0 to 1. What is late or failed is recorded anyway.
    pub ratio: f64,
    /// Spans that wait to be sent.
    pub queue: usize,
    /// Spans sent at once.
    pub batch: usize,
    /// How long a span waits for others.
    pub delay: Duration,
}

impl Settings {
    /// Reads the variables; `None` where there is no collector to send to.
    ///
    /// # Errors
    ///
    /// A sentence that names the variable and the fix.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let given = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let disabled = given("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let exporter = given("OTEL_TRACES_EXPORTER");
        let address = ADDRESSES.into_iter().find_map(|name| Some((name, given(name)?)));
        match exporter.as_deref() {
            _ if disabled => return Ok(None),
            Some("otlp") => {}
            None if address.is_some() => {}
            Some("none") | None => return Ok(None),
            Some(other) => return Err(format!("OTEL_TRACES_EXPORTER is {other:?}; set it to \"otlp\" or \"none\"")),
        }
        let protocol = protocol(&given)?;
        // Without a scheme gRPC takes it, too.
        let is_bare = |url: &str| protocol == Protocol::Grpc && !url.contains("://");
        let is_url = |url: &str| url.starts_with("http://") || url.starts_with("https://") || is_bare(url);
        // Never shown: it may have a password in it.
        if let Some((name, _)) = address.filter(|(_, url)| !is_url(url)) {
            return Err(format!("{name} is no URL of http or https; set it to one like \"http://collector:4318\""));
        }
        let number = |name: &str, default: usize, most: usize| match given(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|number| (1..=most).contains(number))
                .ok_or_else(|| format!("{name} is {text:?}; set it to a whole number from 1 to {most}")),
        };
        let queue = number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS, QUEUE_SPANS_MAX)?;
        let batch = number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_SPANS.min(queue), queue)?;
        let delay = number("OTEL_BSP_SCHEDULE_DELAY", DELAY.as_millis() as usize, 3_600_000)?;
        Ok(Some(Self { protocol, ratio: ratio(&given)?, queue, batch, delay: Duration::from_millis(delay as u64) }))
    }
}

/// How spans are sent; the variable that is about traces alone wins.
fn protocol(given: &impl Fn(&str) -> Option<String>) -> Result<Protocol, String> {
    let named = |name: &'static str| given(name).map(|protocol| (name, protocol));
    let protocol = named("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| named("OTEL_EXPORTER_OTLP_PROTOCOL"));
    match protocol.as_ref().map(|(name, protocol)| (*name, protocol.as_str())) {
        None | Some((_, "http/protobuf")) => Ok(Protocol::Http),
        Some((_, "grpc")) => Ok(Protocol::Grpc),
        Some((name, other)) => Err(format!(
            "{name} is {other:?}; set it to \"http/protobuf\", for which a collector listens on port 4318, or to \"grpc\", \
             on port 4317"
        )),
    }
}

/// The share that is recorded. What the producer's span says does not count: it would decide for a message that
/// is delivered hours later.
fn ratio(given: &impl Fn(&str) -> Option<String>) -> Result<f64, String> {
    let sampler = given("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "always_on".to_owned());
    match sampler.strip_prefix("parentbased_").unwrap_or(&sampler) {
        "always_on" => Ok(1.0),
        "always_off" => Ok(0.0),
        "traceidratio" => {
            let share = given("OTEL_TRACES_SAMPLER_ARG").unwrap_or_else(|| "1".to_owned());
            let read = share.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            read.ok_or_else(|| format!("OTEL_TRACES_SAMPLER_ARG is {share:?}; set it to a number from 0 to 1"))
        }
        _ => Err(format!(
            "OTEL_TRACES_SAMPLER is {sampler:?}; set it to \"always_on\", \"always_off\" or \"traceidratio\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let find = |name: &str| variables.iter().find(|(given, _)| *given == name);
        Settings::from_env(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    const ON: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");

    #[test]
    fn nothing_is_recorded_unless_there_is_a_collector() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), Ok(None), "empty is as good as absent");
        assert_eq!(read(&[ON, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
        assert_eq!(read(&[ON, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        let (protocol, delay) = (Protocol::Http, Duration::from_secs(5));
        let plain = Settings { protocol, ratio: 1.0, queue: 2048, batch: 512, delay };
        assert_eq!(read(&[ON]), Ok(Some(plain.clone())));
        assert_eq!(read(&[("OTEL_TRACES_EXPORTER", "otlp")]), Ok(Some(plain)));
    }

    #[test]
    fn spans_go_by_http_or_grpc_and_the_variable_for_traces_wins() {
        let protocol = |variables: &[_]| read(&[&[ON], variables].concat()).unwrap().unwrap().protocol;
        let (all, traces) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
        assert_eq!(protocol(&[(all, "http/protobuf")]), Protocol::Http);
        assert_eq!(protocol(&[(all, "grpc")]), Protocol::Grpc);
        assert_eq!(protocol(&[(all, "grpc"), (traces, "http/protobuf")]), Protocol::Http);
        assert_eq!(protocol(&[(all, "http/json"), (traces, "grpc")]), Protocol::Grpc);
    }

    #[test]
    fn the_producers_decision_is_left_out_of_every_sampler() {
        let ratio = |sampler, share| {
            let settings = read(&[ON, ("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", share)]);
            settings.map(|settings| settings.unwrap().ratio)
        };
        assert_eq!(ratio("parentbased_traceidratio", "0.01"), Ok(0.01));
        assert_eq!(ratio("traceidratio", "0.5"), Ok(0.5));
        assert_eq!((ratio("parentbased_always_off", ""), ratio("always_on", "x")), (Ok(0.0), Ok(1.0)));
        assert!(ratio("traceidratio", "2").unwrap_err().contains("OTEL_TRACES_SAMPLER_ARG"));
        assert!(ratio("traceidratio", "NaN").is_err());
        assert!(ratio("jaeger_remote", "").unwrap_err().contains("traceidratio"));
    }

    #[test]
    fn a_value_that_cannot_be_kept_to_is_refused_with_the_fix() {
        for (name, value, fix) in [
            ("OTEL_TRACES_EXPORTER", "zipkin", "\"otlp\""),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "\"grpc\""),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://collector", "\"http://"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318", "\"http://"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "1 to"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2049", "1 to 2048"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5s", "whole number"),
        ] {
            let refused = read(&[ON, (name, value)]).unwrap_err();
            assert!(refused.contains(name) && refused.contains(fix), "{refused}");
        }
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        assert!(read(&[grpc, ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")]).is_ok());
        assert!(read(&[grpc, ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector:4317")]).is_err());
        let small = read(&[ON, ("OTEL_BSP_MAX_QUEUE_SIZE", "10"), ("OTEL_BSP_SCHEDULE_DELAY", "20")]).unwrap().unwrap();
        assert_eq!((small.queue, small.batch, small.delay), (10, 10, Duration::from_millis(20)));
    }
}
