"""Client of Duetime: messages delivered at their due time, and cancelled before it."""

from ._async import AsyncDuetime, AsyncTopic
from ._consume import Delivery
from ._consume_async import AsyncDelivery
from ._shards import shard_of
from ._sync import Duetime, Topic
from ._types import (
    ApiError,
    Became,
    Cancelled,
    CancelOutcome,
    Claimed,
    ClaimedMessage,
    Death,
    DuetimeError,
    Duration,
    End,
    Enqueued,
    EnqueueOutcome,
    ForeignAnswer,
    InvalidSignature,
    ItemError,
    Message,
    NewMessage,
    NoAnswer,
    OnConflict,
    Rescheduled,
    RescheduleOutcome,
    Settled,
    SettleOutcome,
    TopicInfo,
)
from ._verify import verify

__all__ = [
    "ApiError",
    "AsyncDelivery",
    "AsyncDuetime",
    "AsyncTopic",
    "Became",
    "CancelOutcome",
    "Cancelled",
    "Claimed",
    "ClaimedMessage",
    "Death",
    "Delivery",
    "Duetime",
    "DuetimeError",
    "Duration",
    "End",
    "EnqueueOutcome",
    "Enqueued",
    "ForeignAnswer",
    "InvalidSignature",
    "ItemError",
    "Message",
    "NewMessage",
    "NoAnswer",
    "OnConflict",
    "RescheduleOutcome",
    "Rescheduled",
    "SettleOutcome",
    "Settled",
    "Topic",
    "TopicInfo",
    "shard_of",
    "verify",
]
