//! Messages on their way into a topic: in requests of bounded size, repeated where that can help.

use duetime_client::{Answer, Client, ClientError, NewMessage, Placed};
use duetime_core::limits::ENQUEUE_BYTES_MAX;

/// Messages of one request.
const ITEMS: usize = 500;
/// Bytes of payloads of one request; one message may have more.
const BYTES: usize = ENQUEUE_BYTES_MAX / 4;

/// What became of one message.
pub(super) enum Sent {
    Scheduled(Placed),
    Replaced(Placed),
    Duplicate(Placed),
    Refused { message: NewMessage, why: String },
}

/// Cuts messages into requests, in their order; none has more than may be sent in a second.
pub(super) fn requests(messages: Vec<NewMessage>, per_second: Option<u32>) -> Vec<Vec<NewMessage>> {
    let items = per_second.map_or(ITEMS, |rate| ITEMS.min(rate as usize)).max(1);
    let (mut requests, mut one, mut bytes) = (Vec::new(), Vec::new(), 0);
    for message in messages {
        if !one.is_empty() && (one.len() == items || bytes + message.payload.len() > BYTES) {
            requests.push(std::mem::take(&mut one));
            bytes = 0;
        }
        bytes += message.payload.len();
        one.push(message);
    }
    if !one.is_empty() {
        requests.push(one);
    }
    requests
}

/// Enqueues what one request can have. What was refused for the moment is sent again by itself.
///
/// # Errors
///
/// The node refuses the request as a whole, or did not answer for as long as the client asks again.
pub(super) async fn send(client: &Client, topic: &str, messages: Vec<NewMessage>) -> Result<Vec<Sent>, ClientError> {
    let answers = client.enqueue_many(topic, &messages).await?;
    let sent = |(message, answer): (NewMessage, Answer<Placed>)| match answer {
        Answer::Done(placed) => match placed.outcome.as_str() {
            "duplicate" | "kept" | "cancelled_before" => Sent::Duplicate(placed),
            "replaced" => Sent::Replaced(placed),
            _ => Sent::Scheduled(placed),
        },
        Answer::Refused(refused) => Sent::Refused { message, why: why(&refused.error) },
    };
    Ok(messages.into_iter().zip(answers).map(sent).collect())
}

fn why(error: &duetime_client::ItemProblem) -> String {
    format!("{} ({})", error.detail, error.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_bounded_by_messages_and_by_bytes() {
        let of = |count: usize, bytes: usize, rate: Option<u32>| -> Vec<usize> {
            let messages = (0..count).map(|_| NewMessage::new(vec![0; bytes])).collect();
            requests(messages, rate).iter().map(Vec::len).collect()
        };
        assert_eq!(of(1001, 10, None), [500, 500, 1]);
        assert_eq!(of(3, BYTES, None), [1, 1, 1]);
        assert_eq!(of(4, BYTES / 2, None), [2, 2]);
        assert_eq!(of(5, 10, Some(2)), [2, 2, 1]);
        assert!(of(0, 0, None).is_empty());
    }
}
