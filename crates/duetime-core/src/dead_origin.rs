//! Where a message comes from that was forwarded as a dead letter of another topic.
//!
//! It is kept among the headers of the message, and whoever is handed the message sees it.

use crate::limits::REASON_BYTES_MAX;
use crate::message::{Death, EXPIRES, Headers, MAX_ATTEMPTS, REPEAT, VISIBILITY};
use crate::names::TopicName;

/// How the names of these headers begin.
pub const DEAD_HEADERS: &str = "duetime-dead-";
/// The topic in which the message died.
pub const DEAD_FROM: &str = "duetime-dead-from";
/// When it died, milliseconds since the Unix epoch.
const DIED_AT: &str = "duetime-dead-at";
/// How often it had been delivered there.
const ATTEMPTS: &str = "duetime-dead-attempts";
/// Why it died, in visible ASCII and spaces.
const REASON: &str = "duetime-dead-reason";
/// What was said of the message in its former topic and does not hold in the one to which it is forwarded.
const LEFT_BEHIND: [&str; 4] = [EXPIRES, MAX_ATTEMPTS, VISIBILITY, REPEAT];

/// Where a forwarded message died, when, why, and after how many attempts.
#[derive(Clone, Copy, Debug)]
pub struct DeadOrigin<'a> {
    /// The topic.
    pub topic: &'a TopicName,
    /// When and why.
    pub death: &'a Death,
    /// Deliveries that it had.
    pub attempts: u8,
}

impl DeadOrigin<'_> {
    /// The headers of the forwarded message: it expires no more, attempts and visibility timeout are those of its new topic, and it
    /// says where it comes from. What finds no space among Duetime's own headers is left out, the reason first; `None`: not even
    /// the topic does.
    #[must_use]
    pub fn kept_in(&self, headers: &Headers) -> Option<Headers> {
        let kept = LEFT_BEHIND.iter().fold(without(headers), |headers, name| headers.without(name));
        let mut kept = kept.append(DEAD_FROM, self.topic.as_str()).ok()?;
        let rest = [
            (DIED_AT, self.death.at.as_millis().to_string()),
            (ATTEMPTS, self.attempts.to_string()),
            (REASON, plain(&self.death.reason)),
        ];
        for (name, value) in rest {
            kept = kept.append(name, &value).unwrap_or_else(|without| without);
        }
        Some(kept)
    }
}

/// The topic from which a message with these headers was forwarded.
#[must_use]
pub fn of(headers: &Headers) -> Option<&str> {
    headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(DEAD_FROM)).map(|(_, topic)| topic)
}

/// The headers without what says that the message was forwarded.
#[must_use]
pub fn without(headers: &Headers) -> Headers {
    let others = headers.iter().filter(|(name, _)| !says_origin(name));
    Headers::from_stored(others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Whether a receiver could take a header with this name for one of these, as names of headers have no case.
fn says_origin(name: &str) -> bool {
    let start = name.as_bytes().get(..DEAD_HEADERS.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(DEAD_HEADERS.as_bytes()))
}

/// Each character that a header of HTTP cannot carry is a `?`.
fn plain(reason: &str) -> String {
    let one = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    reason.chars().map(one).take(REASON_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{HEADERS_MAX, OWN_HEADERS_MAX};
    use crate::message::PREVIOUS;
    use crate::time::Timestamp;

    fn headers(names: &[&str]) -> Headers {
        Headers::from_stored(names.iter().map(|name| ((*name).to_owned(), "7".to_owned())).collect())
    }

    fn kept(reason: &str, headers: &Headers) -> Option<Headers> {
        let death = Death { at: Timestamp::from_millis(5), reason: reason.to_owned() };
        DeadOrigin { topic: &"orders".parse().unwrap(), death: &death, attempts: 3 }.kept_in(headers)
    }

    #[test]
    fn a_forwarded_message_says_where_it_died_and_neither_expires_nor_counts_on() {
        let given = headers(&["shop", EXPIRES, MAX_ATTEMPTS, VISIBILITY, REPEAT, PREVIOUS]);
        let kept = kept("refused:\n\u{fc}ber", &given).unwrap();
        let shown: Vec<_> = kept.delivered().collect();
        let own = [(DEAD_FROM, "orders"), (DIED_AT, "5"), (ATTEMPTS, "3"), (REASON, "refused:??ber")];
        assert_eq!(shown, [&[("shop", "7")][..], &own].concat());
        assert_eq!((of(&kept), of(&given), kept.get(PREVIOUS)), (Some("orders"), None, Some("7")));
        assert_eq!(without(&kept), headers(&["shop", PREVIOUS]));
        let forged = headers(&["Duetime-Dead-From", "shop"]);
        assert_eq!((of(&forged), without(&forged)), (Some("7"), headers(&["shop"])));
        assert!(Headers::new(kept.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect()).is_ok());
    }

    #[test]
    fn headers_stay_within_their_bounds_and_the_topic_is_never_left_out() {
        let full = |own: usize| {
            let given = (0..HEADERS_MAX).map(|n| format!("h{n}"));
            let all: Vec<String> = given.chain((0..own).map(|n| format!("duetime-{n}"))).collect();
            headers(&all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let count = |own| kept("refused", &full(own)).map(|kept| kept.len() - HEADERS_MAX - own);
        let all = [4, OWN_HEADERS_MAX - 4, OWN_HEADERS_MAX - 3, OWN_HEADERS_MAX - 1, OWN_HEADERS_MAX];
        assert_eq!(all.map(count), [Some(4), Some(4), Some(3), Some(1), None]);
    }
}
