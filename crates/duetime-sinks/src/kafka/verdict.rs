//! What an error of a broker or of the client library means for a message.

use duetime_core::Verdict;
use rdkafka::error::RDKafkaErrorCode as Code;

/// Whom an error concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorScope {
    /// This message, for ever.
    ThisMessage,
    /// The topic it goes to.
    ItsTopic,
    /// This message, this time.
    ThisTime,
    /// The partition it goes to: it has no leader, or not enough replicas.
    ItsPartition,
    /// The cluster as a whole.
    Cluster,
}

/// Whom `code` concerns.
pub(super) fn met(code: Code) -> ErrorScope {
    match code {
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::MessageBatchTooLarge
        | Code::InvalidMessage
        | Code::InvalidTimestamp
        | Code::InvalidTopic
        | Code::InvalidRecord
        | Code::PolicyViolation => ErrorScope::ThisMessage,
        Code::UnknownTopic
        | Code::UnknownTopicOrPartition
        | Code::UnknownPartition
        | Code::TopicAuthorizationFailed => ErrorScope::ItsTopic,
        Code::NotEnoughReplicas
        | Code::NotEnoughReplicasAfterAppend
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::KafkaStorageError => ErrorScope::ItsPartition,
        Code::BrokerTransportFailure
        | Code::OperationTimedOut
        | Code::MessageTimedOut
        | Code::RequestTimedOut
        | Code::AllBrokersDown
        | Code::Resolve
        | Code::Authentication
        | Code::SSL
        | Code::QueueFull
        | Code::BrokerNotAvailable
        | Code::NetworkException
        | Code::ClusterAuthorizationFailed
        | Code::ThrottlingQuotaExceeded
        | Code::UnsupportedCompressionType
        | Code::UnsupportedForMessageFormat
        | Code::InvalidRequiredAcks
        | Code::SaslAuthenticationFailed => ErrorScope::Cluster,
        _ if ends_producer(code) => ErrorScope::Cluster,
        _ => ErrorScope::ThisTime,
    }
}

/// Whether a producer that gets this answer is of no more use, though another one may be: its brokers do
/// not know it any more, or not as the library thinks they do.
pub(super) fn ends_producer(code: Code) -> bool {
    matches!(
        code,
        // What a producer that gave up had not sent, and what it had.
        Code::Fatal
            | Code::PurgeQueue
            | Code::PurgeInflight
            | Code::Fenced
            | Code::OutOfOrderSequenceNumber
            | Code::InvalidProducerEpoch
            | Code::InvalidProducerIdMapping
            | Code::UnknownProducerId
            | Code::ProducerFenced
    )
}

/// The verdict.
pub(super) fn of_code(code: Code, said: &str, topic: &str) -> Verdict {
    let retry = |reason| Verdict::Retry { reason, after: None };
    match met(code) {
        ErrorScope::ThisMessage if matches!(code, Code::MessageSizeTooLarge | Code::MessageBatchTooLarge) => {
            Verdict::Rejected {
                reason: "it is larger than `max_message` of the sink or `max.message.bytes` of the topic".to_owned(),
            }
        }
        ErrorScope::ThisMessage => Verdict::Rejected { reason: format!("Kafka refuses it: {said}") },
        ErrorScope::ItsTopic if code == Code::TopicAuthorizationFailed => {
            retry(format!("the user may not write to the topic {topic:?}; give it the right"))
        }
        ErrorScope::ItsTopic => {
            retry(format!("Kafka has no topic {topic:?} (or not that partition); create it, or fix `topic`"))
        }
        ErrorScope::ThisTime => retry(format!("Kafka refuses it: {said}")),
        ErrorScope::ItsPartition => retry(said.to_owned()),
        ErrorScope::Cluster => Verdict::NoAnswer { reason: said.to_owned() },
    }
}
