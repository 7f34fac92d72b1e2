//! The workload `orders`: every order has a time to pay; most are paid, which cancels their timeout,
//! and what is left is checked one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use duetime_core::{Clock, MessageId, Timestamp};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::Orders;
use crate::clock::FineClock;
use crate::load::{Ids, LONGEST_US, bar, histogram, payload};
use crate::report::Report;
use crate::target::{CancelOutcome, Item, LoadTarget, Recorder};

/// What falls into one step of this is sent together.
const STEP: Duration = Duration::from_millis(5);
/// A customer pays no sooner than the shop has most likely answered.
const ANSWERED: Duration = Duration::from_millis(100);
/// A paid order is paid no later than this share of its time.
const PAID_BEFORE: f64 = 0.97;

/// What is known of one order, as bits of one byte.
mod known {
    /// The enqueue was acknowledged.
    pub const SCHEDULED: u16 = 1;
    /// An answer was lost: whether it was done is not known.
    pub const UNSURE: u16 = 2;
    /// The cancel answered `cancelled`.
    pub const CANCELLED: u16 = 4;
    /// The cancel answered `in_flight`.
    pub const IN_FLIGHT: u16 = 8;
    /// The cancel answered `unknown`: it came too late.
    pub const UNKNOWN: u16 = 16;
    /// It was delivered.
    pub const ONCE: u16 = 32;
    /// It was delivered again.
    pub const AGAIN: u16 = 64;
    /// It was delivered before its due time.
    pub const EARLY: u16 = 128;
    /// The cancel answered `unknown` although it had not been delivered.
    pub const VANISHED: u16 = 256;
}

#[derive(Debug)]
struct Ledger {
    ids: Ids,
    clock: FineClock,
    orders: Vec<AtomicU16>,
    late: Mutex<Histogram<u64>>,
}

impl Ledger {
    fn note(&self, order: u64, bits: u16) -> u16 {
        let at = usize::try_from(order).expect("an index");
        self.orders[at].fetch_or(bits, Ordering::SeqCst)
    }
}

impl Recorder for Ledger {
    fn delivered(&self, messages: &[(MessageId, Timestamp)]) {
        for (id, due_at) in messages {
            let Some(order) = self.ids.number(id) else { continue };
            let (late_us, early) = self.clock.lateness(*due_at);
            let mut bits = known::ONCE;
            if early {
                bits |= known::EARLY;
            }
            if self.note(order, bits) & known::ONCE != 0 {
                self.note(order, known::AGAIN);
            }
            self.late.lock().saturating_record(late_us.clamp(1, LONGEST_US));
        }
    }
}

/// What the ledger says in the end.
#[derive(Debug, Default)]
struct OrdersVerdict {
    scheduled: u64,
    cancelled: u64,
    delivered: u64,
    crossed: u64,
    missed: u64,
    unsure: u64,
    lost: u64,
    early: u64,
    twice: u64,
    cancelled_and_delivered: u64,
    vanished: u64,
}

impl OrdersVerdict {
    fn of(orders: &[AtomicU16]) -> Self {
        let mut sum = Self::default();
        for order in orders {
            let bits = order.load(Ordering::SeqCst);
            let is = |bit| bits & bit != 0;
            let count = |counter: &mut u64, yes: bool| *counter += u64::from(yes);
            count(&mut sum.scheduled, is(known::SCHEDULED));
            count(&mut sum.cancelled, is(known::CANCELLED));
            count(&mut sum.delivered, is(known::ONCE));
            count(&mut sum.crossed, is(known::IN_FLIGHT));
            count(&mut sum.unsure, is(known::UNSURE));
            count(&mut sum.early, is(known::EARLY));
            count(&mut sum.twice, is(known::AGAIN));
            count(&mut sum.cancelled_and_delivered, is(known::CANCELLED) && is(known::ONCE));
            let gone = is(known::CANCELLED) || is(known::ONCE) || is(known::IN_FLIGHT);
            count(&mut sum.lost, is(known::SCHEDULED) && !gone && !is(known::UNSURE));
            count(&mut sum.missed, is(known::UNKNOWN));
            count(&mut sum.vanished, is(known::VANISHED));
        }
        sum
    }
}

/// Something that happens to an order, this long after the beginning.
struct Happening {
    after: Duration,
    order: u64,
    paid: bool,
}

fn script(own: &Orders) -> Vec<Happening> {
    let mut draw = rand::rng();
    let mut all = Vec::new();
    for order in 0..own.common.count {
        let placed = Duration::from_secs_f64(order as f64 / own.rate as f64);
        all.push(Happening { after: placed, order, paid: false });
        if draw.random::<f64>() < own.paid {
            let pays = own.timeout.mul_f64(draw.random::<f64>() * PAID_BEFORE);
            all.push(Happening { after: placed + pays + ANSWERED, order, paid: true });
        }
    }
    all.sort_by_key(|happening| happening.after);
    all
}

pub async fn run(
    own: &Orders,
    target: &Arc<dyn LoadTarget>,
    host: Arc<dyn Clock>,
    report: &mut Report,
) -> anyhow::Result<()> {
    anyhow::ensure!((0.0..=1.0).contains(&own.paid), "--paid must be 0 to 1");
    anyhow::ensure!(own.rate > 0, "--rate must be 1 or more");
    let count = own.common.count;
    let ledger = Arc::new(Ledger {
        ids: Ids::new(),
        clock: FineClock::set(host),
        orders: (0..count).map(|_| AtomicU16::new(0)).collect(),
        late: Mutex::new(histogram()),
    });
    let happenings = script(own);
    let consuming = target.consume(ledger.clone()).await?;
    play(own, target, &ledger, happenings).await?;
    let left = wait(own, target).await?;
    consuming.stop().await?;

    let verdict = OrdersVerdict::of(&ledger.orders);
    report.figure("orders", count as f64, "");
    report.figure("placed", own.rate as f64, "orders/s");
    report.figure("time to pay", own.timeout.as_secs_f64(), "s");
    report.figure("paid and cancelled", verdict.cancelled as f64, "");
    report.figure("delivered", verdict.delivered as f64, "");
    report.figure("cancelled while being delivered", verdict.crossed as f64, "");
    report.figure("delivered before the cancel came", verdict.missed as f64, "");
    report.figure("answers lost", verdict.unsure as f64, "");
    report.latency("lateness", &ledger.late.lock());
    for (what, wrong) in [
        ("none lost", verdict.lost),
        ("none early", verdict.early),
        ("none twice", verdict.twice),
        ("none cancelled and delivered", verdict.cancelled_and_delivered),
        ("none unknown before it was delivered", verdict.vanished),
        ("nothing is left", left),
    ] {
        report.figure(what, wrong as f64, "wrong");
        report.must(what, wrong == 0);
    }
    report.must("each was scheduled", verdict.scheduled + verdict.unsure >= count);
    Ok(())
}

/// Waits until all is due and settled, or the grace is over; how much is left.
async fn wait(own: &Orders, target: &Arc<dyn LoadTarget>) -> anyhow::Result<u64> {
    let until = Instant::now() + own.timeout + own.grace;
    loop {
        let survey = target.survey().await?;
        let left = survey.scheduled + survey.in_flight + survey.dead;
        if left == 0 || Instant::now() > until {
            // What is delivered twice would come soon after the first time.
            sleep(own.grace.min(Duration::from_secs(2))).await;
            return Ok(left);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn play(
    own: &Orders,
    target: &Arc<dyn LoadTarget>,
    ledger: &Arc<Ledger>,
    all: Vec<Happening>,
) -> anyhow::Result<()> {
    let bar = bar("orders", all.len() as u64);
    let payload = payload(own.common.payload);
    let permits = Arc::new(Semaphore::new(own.common.concurrency));
    let (began, mut tick, mut at, mut sending) = (Instant::now(), Instant::now(), 0, JoinSet::new());
    while at < all.len() {
        tick += STEP;
        sleep_until(tick).await;
        let elapsed = began.elapsed();
        let end = at + all[at..].partition_point(|happening| happening.after <= elapsed);
        let mut placed: Vec<Vec<u64>> = vec![Vec::new(); target.groups()];
        let mut paid = placed.clone();
        for happening in &all[at..end] {
            let group = target.group_of(&ledger.ids.id(happening.order));
            if happening.paid { paid[group].push(happening.order) } else { placed[group].push(happening.order) }
        }
        bar.inc((end - at) as u64);
        at = end;
        let steps =
            placed.into_iter().map(|orders| (false, orders)).chain(paid.into_iter().map(|orders| (true, orders)));
        for (pay, orders) in steps {
            for orders in orders.chunks(own.common.batch) {
                let permit = permits.clone().acquire_owned().await?;
                let (target, ledger, payload) = (target.clone(), ledger.clone(), payload.clone());
                let (orders, timeout) = (orders.to_vec(), own.timeout);
                sending.spawn(async move {
                    if pay {
                        cancel(&target, &ledger, orders).await
                    } else {
                        place(&target, &ledger, orders, timeout, payload).await
                    }
                    drop(permit);
                });
            }
        }
        while let Some(done) = sending.try_join_next() {
            done?;
        }
    }
    while let Some(done) = sending.join_next().await {
        done?;
    }
    bar.finish_and_clear();
    Ok(())
}

async fn place(target: &Arc<dyn LoadTarget>, ledger: &Ledger, orders: Vec<u64>, timeout: Duration, payload: Bytes) {
    let due_at = ledger.clock.now().plus(timeout);
    let batch: Vec<Item> = orders.iter().map(|order| ledger.ids.item(*order, due_at, &payload)).collect();
    let all_new = target.enqueue(batch).await.is_ok_and(|new| new == orders.len() as u64);
    for order in orders {
        ledger.note(order, if all_new { known::SCHEDULED } else { known::UNSURE });
    }
}

async fn cancel(target: &Arc<dyn LoadTarget>, ledger: &Ledger, mut orders: Vec<u64>) {
    // Nobody pays an order that the shop has not confirmed.
    orders.retain(|order| ledger.note(*order, 0) & known::SCHEDULED != 0);
    if orders.is_empty() {
        return;
    }
    let outcomes = target.cancel(orders.iter().map(|order| ledger.ids.id(*order)).collect()).await;
    for (at, order) in orders.into_iter().enumerate() {
        let bits = match outcomes.as_ref().ok().and_then(|outcomes| outcomes.get(at)) {
            Some(CancelOutcome::Cancelled) => known::CANCELLED,
            Some(CancelOutcome::InFlight) => known::IN_FLIGHT,
            // A delivery is noted before it is settled, so the order must have one by this answer.
            Some(CancelOutcome::Unknown) if ledger.note(order, 0) & known::ONCE == 0 => {
                known::UNKNOWN | known::VANISHED
            }
            Some(CancelOutcome::Unknown) => known::UNKNOWN,
            None => known::UNSURE,
        };
        ledger.note(order, bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_finds_each_kind_of_wrong() {
        let orders = |bits: &[u16]| -> Vec<AtomicU16> { bits.iter().map(|b| AtomicU16::new(*b)).collect() };
        use known::*;
        let fine =
            OrdersVerdict::of(&orders(&[SCHEDULED | CANCELLED, SCHEDULED | ONCE, SCHEDULED | IN_FLIGHT, UNSURE]));
        assert_eq!((fine.lost, fine.early, fine.twice, fine.cancelled_and_delivered, fine.vanished), (0, 0, 0, 0, 0));
        let wrong = OrdersVerdict::of(&orders(&[
            SCHEDULED,
            SCHEDULED | ONCE | EARLY,
            SCHEDULED | ONCE | AGAIN,
            SCHEDULED | CANCELLED | ONCE,
            SCHEDULED | UNKNOWN | VANISHED,
        ]));
        assert_eq!(
            (wrong.lost, wrong.early, wrong.twice, wrong.cancelled_and_delivered, wrong.vanished),
            (2, 1, 1, 1, 1)
        );
    }
}
