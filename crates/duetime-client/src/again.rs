//! Sends again what is safe to send again, for as long as the caller allows.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::answers::Answer;
use crate::call::{Client, Whole};
use crate::error::ClientError;
use crate::messages::Results;

/// The first pause is up to this long, each further one up to twice the one before, by chance (full jitter).
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause, unless the node asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A pause by chance after this many failures in a row, and after what the node asks for, so that those who were asked
/// to wait for the same time do not come at the same moment.
pub(crate) fn pause_after(failures: u32, at_least: Duration) -> Duration {
    let most = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    at_least + most.mul_f64(rand::random::<f64>())
}

/// Until when a call is tried.
struct Patience {
    /// `None`: for good.
    until: Option<Instant>,
    failures: u32,
}

impl Patience {
    /// Waits before the next try, at least as long as the node asks for. Returns false, at once, if the time is up by
    /// then.
    async fn pause(&mut self, at_least: Duration) -> bool {
        let next = Instant::now() + pause_after(self.failures, at_least);
        self.failures += 1;
        if self.until.is_some_and(|until| next >= until) {
            return false;
        }
        tokio::time::sleep_until(next).await;
        true
    }
}

/// What was answered in the end.
pub(crate) struct Told<T> {
    pub answer: T,
    pub status: u16,
    /// After how many seconds the next request may come at the earliest, where the answer says so.
    pub retry_after: Option<u64>,
    /// The id of the request.
    pub request_id: Option<String>,
    /// An earlier try may have been carried out.
    pub repeated: bool,
}

impl Client {
    /// The same client, which sends again for so long what found no node, lost its answer, or was refused for a passing
    /// reason ([`ClientError::is_retryable`]), and single items of many that failed for one. What is sent again is safe to
    /// repeat: an id is made here where a message has none. It holds for enqueues, cancels, reschedules, claims and
    /// settlements, for topics that are created or changed, and for reads; by default nothing is sent again. For other
    /// calls see [`Self::again`].
    #[must_use]
    pub fn retrying(mut self, retry_for: Duration) -> Self {
        self.retry_for = retry_for;
        self
    }

    /// Makes a call until it is answered, as [`Self::retrying`] says: one that may be carried out twice, and does not send
    /// again what it asks by itself, such as a page of lines and its bytes.
    ///
    /// # Errors
    ///
    /// That of the last try.
    pub async fn again<T>(&self, call: impl AsyncFn() -> Result<T, ClientError>) -> Result<T, ClientError> {
        let mut patience = self.patience();
        loop {
            match call().await {
                Err(error) if error.is_retryable() && patience.pause(error.retry_after()).await => {}
                answer => return answer,
            }
        }
    }

    fn patience(&self) -> Patience {
        Patience { until: Instant::now().checked_add(self.retry_for), failures: 0 }
    }

    /// [`Self::call`] of a request that is safe to repeat.
    pub(crate) async fn call_again<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        self.call_told(request).await.map(|told| told.answer)
    }

    /// The same, with what is known of the tries.
    pub(crate) async fn call_told<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Told<T>, ClientError> {
        self.call_patiently(self.patience(), request).await
    }

    async fn call_patiently<T: DeserializeOwned>(
        &self,
        mut patience: Patience,
        request: RequestBuilder,
    ) -> Result<Told<T>, ClientError> {
        let mut repeated = false;
        let told = |(answer, whole): (T, Whole), repeated| {
            let Whole { status, retry_after, request_id, .. } = whole;
            Told { answer, status, retry_after, request_id, repeated }
        };
        loop {
            let Some(copy) = request.try_clone() else {
                return Ok(told(self.call_once(request).await?, repeated));
            };
            match self.call_once(copy).await {
                Ok(answered) => return Ok(told(answered, repeated)),
                Err(error) => {
                    let may_be_done = error.may_be_done();
                    if !error.is_retryable() || !patience.pause(error.retry_after()).await {
                        return Err(if repeated { error.after_another(self.given_id()) } else { error });
                    }
                    repeated |= may_be_done;
                }
            }
        }
    }

    /// Asks for many items, and again for those of them that failed for a passing reason. `request` makes the request for
    /// the items at these places.
    pub(crate) async fn many_again<T: DeserializeOwned>(
        &self,
        count: usize,
        request: impl Fn(&[usize]) -> Result<RequestBuilder, ClientError>,
    ) -> Result<Vec<Answer<T>>, ClientError> {
        self.many_told(count, request, |_, answer, _| answer).await
    }

    /// The same; `tell` takes what was done of the item at a place, and whether an earlier try may have done it.
    pub(crate) async fn many_told<T: DeserializeOwned>(
        &self,
        count: usize,
        request: impl Fn(&[usize]) -> Result<RequestBuilder, ClientError>,
        tell: impl Fn(usize, T, bool) -> T,
    ) -> Result<Vec<Answer<T>>, ClientError> {
        let mut patience = self.patience();
        let mut places: Vec<usize> = (0..count).collect();
        let mut answers: Vec<Option<Answer<T>>> = (0..count).map(|_| None).collect();
        loop {
            // What is sent again as a whole ends with the time for the items.
            let within = Patience { until: patience.until, failures: 0 };
            let Told { answer, repeated, request_id, .. } =
                self.call_patiently::<Results<Answer<T>>>(within, request(&places)?).await?;
            let asked = answer.results;
            if asked.len() != places.len() {
                return Err(self.foreign(format!("{} answers for {} items", asked.len(), places.len())));
            }
            for (place, answer) in places.iter().copied().zip(asked) {
                let answer = match answer {
                    Answer::Refused(mut refused) => {
                        refused.error.index = place as u64;
                        refused.error.request_id = request_id.as_deref().map(Box::from);
                        Answer::Refused(refused)
                    }
                    // What failed before may have been done all the same.
                    Answer::Done(done) => Answer::Done(tell(place, done, repeated || answers[place].is_some())),
                };
                answers[place] = Some(answer);
            }
            let is_passing = |place: &usize| match &answers[*place] {
                Some(Answer::Refused(refused)) => refused.error.retryable,
                _ => false,
            };
            places.retain(is_passing);
            if places.is_empty() || !patience.pause(Duration::ZERO).await {
                return Ok(answers.into_iter().map(|answer| answer.expect("each was answered once")).collect());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_pause_grows_is_drawn_and_is_not_shorter_than_the_node_asks_for() {
        let mut drawn = BTreeSet::new();
        for failures in 0..20 {
            let pause = pause_after(failures, Duration::ZERO);
            assert!(pause <= LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.pow(failures)), "{failures}: {pause:?}");
            drawn.insert(pause);
            drawn.insert(pause_after(3, Duration::from_secs(7)));
        }
        assert!(drawn.len() > 30, "those who were asked to wait for 7 s come at different times: {drawn:?}");
        assert!(drawn.iter().filter(|pause| **pause >= Duration::from_secs(7)).count() > 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_send_again_for_good_and_an_answer_that_was_lost_once_leaves_open_what_was_done() {
        let client = Client::new("http://127.0.0.1:1", None).unwrap();
        assert!(client.clone().retrying(Duration::MAX).patience().pause(Duration::from_secs(86_400)).await);
        assert!(!client.retrying(Duration::from_secs(5)).patience().pause(Duration::from_secs(5)).await);
        let unreachable = || ClientError::Unreachable { base: "x".to_owned(), reason: "y".to_owned() };
        assert!(!unreachable().may_be_done() && unreachable().after_another(None).may_be_done());
        let refused = |status, code: &str| {
            let problem = crate::Problem { status, code: code.to_owned(), ..crate::Problem::default() };
            ClientError::Refused(Box::new(problem)).may_be_done()
        };
        assert!(refused(503, "") && refused(503, "timeout") && refused(503, "store_unavailable") && refused(502, ""));
        assert!(!refused(503, "busy") && !refused(429, "rate_limited") && !refused(412, "deadline_exceeded"));
    }
}
