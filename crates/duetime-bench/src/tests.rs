//! The workloads themselves, on a store in memory: small, and every check must hold.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use clap::Parser;
use duetime_core::{Clock, Timestamp};
use duetime_small_store::SmallStore;

use crate::{Args, Host, run};

#[derive(Debug)]
struct MachineClock;

impl Clock for MachineClock {
    #[expect(clippy::disallowed_methods, reason = "lateness is measured in real time")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        Timestamp::from_millis(i64::try_from(since.as_millis()).expect("before the end of time"))
    }
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

async fn sound(line: &str) -> bool {
    let words = format!("bench {line} --store memory --warmup 100 --batch 16");
    let args = Line::try_parse_from(words.split_whitespace()).expect("a valid line").args;
    let open_store: crate::OpenStore =
        Box::new(|_, _| Box::pin(async { Ok(SmallStore::new(Arc::new(MachineClock)).await.shared() as Arc<_>) }));
    run(args, Host { open_store, clock: Arc::new(MachineClock) }).await.expect("the store answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_scheduled_cancelled_and_drained() {
    assert!(sound("enqueue -n 2000").await);
    assert!(sound("cancel -n 2000").await);
    assert!(sound("drain -n 2000").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn lateness_is_measured_at_a_rate_and_in_a_burst() {
    assert!(sound("lateness --rate 200 --duration 200ms --ahead 300ms").await);
    assert!(sound("lateness --burst 500 --ahead 10s").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_nobody_pays_are_delivered_and_the_others_are_not() {
    assert!(sound("orders -n 500 --rate 2000 --timeout 500ms --paid 0.7 --grace 60s").await);
}

#[test]
fn a_batch_that_no_store_call_may_have_is_refused() {
    let words = "bench enqueue --store memory --batch 257";
    let args = Line::try_parse_from(words.split_whitespace()).expect("clap cannot know").args;
    assert!(args.what.common().check().unwrap_err().to_string().contains("--batch must be 1 to 256"));
}
