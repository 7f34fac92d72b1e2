"""The nouns of the API: what is sent, what is answered, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from . import _wire

#: A `timedelta`, or a string with a unit such as `"500ms"`, `"30m"`, `"1h 30m"`.
Duration: TypeAlias = timedelta | str

#: What became of an enqueue.
EnqueueOutcome: TypeAlias = Literal["scheduled", "replaced", "kept", "duplicate", "cancelled_before"]
#: What became of a cancel; `delivered` and `dead`: it came too late; `moved`: it lives elsewhere.
CancelOutcome: TypeAlias = Literal["cancelled", "in_flight", "unknown", "delivered", "expired", "dead", "moved"]
#: What became of a reschedule.
RescheduleOutcome: TypeAlias = Literal["rescheduled", "in_flight", "dead", "unknown"]
#: What became of an ack, nack, release or extend.
SettleOutcome: TypeAlias = Literal["ok", "already", "cancelled", "expired", "gone"]
#: How a message ended: `cancelled_in_flight` may have been delivered, of `cancelled_before` there was none.
End: TypeAlias = Literal["delivered", "cancelled", "cancelled_in_flight", "dead", "cancelled_before", "expired", "moved"]
#: What an enqueue does where its id is already there. `earliest`, `latest`: of two that wait, the one that is due
#: earlier, or later, is there, whole; what somebody holds is replaced.
OnConflict: TypeAlias = Literal["reject", "replace", "earliest", "latest", "return"]

#: What keeps a watermark from being later: `due`: a message waits to be claimed; `in_flight`: for the settlement of its
#: claim; `retrying`: for its next attempt; `moving`: for the end of its move to another shard; `shard_unreachable`;
#: `resizing`: the shard count changes, and not all shards have heard of it.
HeldReason: TypeAlias = Literal["due", "in_flight", "retrying", "moving", "shard_unreachable", "resizing"]

#: Codes of an item's refusal that time alone may cure, for a node that does not say so itself.
RETRYABLE = frozenset(
    ["busy", "clock_skew", "draining", "rate_limited", "routing_changing", "store_unavailable", "timeout"]
)


def _named(request_id: str | None, before: str = "; ") -> str:
    """What the text of an error says of its request."""
    return f"{before}request {request_id}" if request_id else ""


def is_passing(status: int) -> bool:
    """True if another answer than this may come later."""
    return status in (429, 502, 503, 504)


class DuetimeError(Exception):
    """The base class of all errors of this package."""


class ApiError(DuetimeError):
    """A refusal by the node: RFC 9457 problem details. `code` is for programs, `detail` says what to do."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        title: str = "",
        field: str | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(f"{detail or title} ({code or status}{_named(request_id, ', ')})")
        self.status, self.code, self.detail, self.title = status, code, detail, title
        #: The field of the request that is to blame.
        self.field = field
        #: Seconds after which the request may be sent again, as the node said.
        self.retry_after = retry_after
        #: The id of the request, which the lines of the node's log about it have.
        self.request_id = request_id
        #: True if the same request may succeed later without anybody doing anything else: as the node said, or, of
        #: what stands before it, by the status.
        self.retryable = retryable if isinstance(retryable, bool) else is_passing(status)


class NoAnswer(DuetimeError):
    """No connection, or a connection that broke, or no answer in time."""

    def __init__(self, reason: str, maybe_done: bool, request_id: str | None = None) -> None:
        doubt = "; whether it was done is unknown" if maybe_done else "; nothing was done"
        super().__init__(f"no answer: {reason}{doubt}{_named(request_id)}")
        self.reason = reason
        #: True if the node may have carried the request out.
        self.maybe_done = maybe_done
        #: The id of the request, where the client was given one.
        self.request_id = request_id


class ForeignAnswer(DuetimeError):
    """The answer is not one of a node; most likely the address is another server's."""

    def __init__(self, detail: str, request_id: str | None = None) -> None:
        super().__init__(f"{detail}{_named(request_id)}")
        #: The id of the request, where the answer or the client had one.
        self.request_id = request_id


class InvalidSignature(DuetimeError):
    """A webhook that is not signed with any of the secrets, or is too old, or comes from the future."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """By which rule a message comes again, under the same id. Give `every` or `cron`.

    The next one is written in the step that ends the one before, so none is lost and none comes twice by that. A cancel
    ends the series.
    """

    #: So long after the one before, counted from the first: 1 s to 10 years.
    every: Duration | None = None
    #: At these times: minute, hour, day of the month, month, day of the week.
    cron: str | None = None
    #: By whose clocks `cron` goes, as IANA names it; None: UTC.
    time_zone: str | None = None
    #: None falls due after this.
    until: datetime | None = None
    #: How many there are, with the first.
    times: int | None = None
    #: What becomes of times that pass while the one before is not settled: left out, or one at once. None: `skip`.
    missed: Literal["skip", "once"] | None = None

    def fields(self) -> dict[str, object]:
        """As a node takes it."""
        given: dict[str, object | None] = {
            "every": None if self.every is None else _wire.duration(self.every),
            "cron": self.cron,
            "time_zone": self.time_zone,
            "until": None if self.until is None else _wire.moment(self.until),
            "times": self.times,
            "missed": self.missed,
        }
        return {name: value for name, value in given.items() if value is not None}


class NewMessage:
    """A message to enqueue. Its id is made here if none is given, so sending it again is a `duplicate`.

    `payload`: bytes and text are delivered as they are, any other value as its JSON. Neither `delay` nor `due_at`:
    due after the `delay` of the topic. `expires` (this long after its due time) or `expires_at`: it is not handed over
    later, and ends as the `on_expiry` of its topic says. `max_attempts`: it is delivered so many times, 1 to 99, before
    it is a dead letter, instead of the number of its topic. `visibility_timeout`: a claim that asks for none hides it
    for so long, 100 ms to 24 h, instead of the time of its topic. `repeat`: it comes again by a rule.
    """

    def __init__(
        self,
        payload: object = b"",
        *,
        id: str | None = None,
        delay: Duration | None = None,
        due_at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        on_conflict: OnConflict | None = None,
        expires: Duration | None = None,
        expires_at: datetime | None = None,
        max_attempts: int | None = None,
        visibility_timeout: Duration | None = None,
        repeat: Repeat | None = None,
    ) -> None:
        #: The id; one that the client made if none was given.
        self.id = _wire.make_id() if id is None else id
        #: True if the client made the id.
        self.has_made_id = id is None
        fields: dict[str, object] = {"id": self.id, **_wire.due(delay, due_at), **_wire.payload(payload)}
        if headers is not None:
            fields["headers"] = dict(headers)
        if on_conflict is not None:
            fields["on_conflict"] = on_conflict
        fields |= _wire.expiry(expires, expires_at)
        if max_attempts is not None:
            fields["max_attempts"] = max_attempts
        if visibility_timeout is not None:
            fields["visibility_timeout"] = _wire.duration(visibility_timeout)
        if repeat is not None:
            fields["repeat"] = repeat.fields()
        #: The message as JSON, in UTF-8 and on one line.
        self.line = _wire.dumps(fields)


@dataclass(frozen=True, slots=True)
class Became:
    """What became of a message that is gone, as a topic with `remember` knows."""

    outcome: End
    #: When it ended, by the clock of the store.
    at: datetime
    #: How often it was tried; None where there was no message.
    attempts: int | None = None
    #: The due time it had, where that is known.
    due_at: datetime | None = None
    #: How many milliseconds after its due time it was delivered.
    late_by_ms: int | None = None
    #: The version that moved, of one that lives elsewhere.
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of an enqueue. Of `kept` and `duplicate` the earlier message stays as it was; `cancelled_before`: its
    cancel came first, and holds."""

    id: str
    outcome: EnqueueOutcome
    shard: int
    #: When it falls due; of a duplicate, where the store knows it.
    due_at: datetime | None = None
    #: How many milliseconds later than asked for that is, where the topic has a `smear`.
    smeared_ms: int | None = None
    #: How many milliseconds the `due_at` that was asked for was past already.
    late_by_ms: int | None = None
    #: True if it was replaced while a consumer or sink held it, which may deliver the old content.
    in_flight: bool = False
    #: Replicas of Redis that have it, where the node waits for them.
    replicas: int | None = None
    #: True if an earlier try of this call may have been carried out: a `duplicate` may be this very message.
    repeated: bool = False
    #: What became of the message that had its id, where that is gone and the topic remembers.
    became: Became | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of a cancel. After `cancelled` the message is never delivered."""

    id: str
    outcome: CancelOutcome
    replicas: int | None = None
    #: True if an earlier try of this call may have been carried out: with `unknown`, it may have cancelled it.
    repeated: bool = False
    #: What became of the message before, where it is gone and the topic remembers.
    became: Became | None = None


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """What became of a reschedule."""

    id: str
    outcome: RescheduleOutcome
    due_at: datetime | None = None
    smeared_ms: int | None = None
    late_by_ms: int | None = None
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of an ack, nack, release or extend. `already` counts as `ok`; `cancelled`: undo what was done."""

    outcome: SettleOutcome
    id: str | None = None
    #: The receipt that counts from now on, after an extension.
    receipt: str | None = None
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class ItemError:
    """One item of many that was refused or failed; the others were not."""

    code: str
    detail: str
    #: Which item of the call it was, from 0.
    index: int
    #: True if the same item may succeed later.
    retryable: bool
    id: str | None = None
    field: str | None = None
    #: The id of the request that it was in.
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Death:
    """Why and when a message became a dead letter."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its shard holds it."""

    id: str
    state: Literal["scheduled", "in_flight", "dead"]
    due_at: datetime
    #: When it may be claimed (again): its due time, the time of a retry, or the deadline of a claim.
    visible_at: datetime
    attempts: int
    redrives: int
    shard: int
    payload: bytes
    headers: Mapping[str, str]
    #: What it is now: another one after each change. None while it is claimed, and of a dead letter.
    version: str | None = None
    #: Until when it may be handed over; None: it does not expire.
    expires_at: datetime | None = None
    #: How many times it is delivered before it is a dead letter; None: as its topic says.
    max_attempts: int | None = None
    #: How long a claim hides it, as `5m`; None: as its topic says.
    visibility_timeout: str | None = None
    #: By which rule it comes again, as a node answers it (`every` or `cron`, `next_at`, …); None: it comes once.
    repeat: Mapping[str, Any] | None = None
    death: Death | None = None

    def json(self) -> Any:
        """The payload, read as JSON."""
        return _wire.loads(self.payload)


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """A claimed message. Settle it by its receipt before its visibility timeout ends."""

    id: str
    receipt: str
    due_at: datetime
    #: Which attempt this is, from 1.
    attempt: int
    #: The same for every attempt of one message: compare it to see a message once.
    delivery_id: str
    payload: bytes
    headers: Mapping[str, str]
    #: When others may have it, by the store's clock; None where nothing is to be settled (at-most-once).
    deadline: datetime | None = None
    #: The span that handling it belongs to (W3C Trace Context).
    traceparent: str | None = None

    def json(self) -> Any:
        """The payload, read as JSON."""
        return _wire.loads(self.payload)


class Claimed(list[ClaimedMessage]):
    """What a claim brought: a list of messages, and what became of the receipts that were acked before it."""

    def __init__(
        self,
        messages: Iterable[ClaimedMessage] = (),
        results: Sequence[Settled | ItemError] = (),
        error: ApiError | None = None,
    ) -> None:
        super().__init__(messages)
        #: For each receipt of `ack`, in order.
        self.results = results
        #: Why nothing could be claimed after the acks.
        self.error = error


@dataclass(frozen=True, slots=True)
class ClaimFailure:
    """A topic that could not be claimed from."""

    topic: str
    code: str
    detail: str
    #: It may answer later, without anybody doing anything else.
    retryable: bool


@dataclass(frozen=True, slots=True)
class ClaimedAny:
    """What a claim over several topics brought, all of one of them."""

    #: Whose messages these are, and where they are settled; None: nothing fell due in time.
    topic: str | None
    messages: Sequence[ClaimedMessage]
    #: Topics that could not be claimed from, though others could.
    failed: Sequence[ClaimFailure]
    #: For each receipt of `ack`, in order.
    results: Sequence[Settled | ItemError] = ()
    #: Why nothing could be claimed after the acks.
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its settings as they apply, and its counts."""

    name: str
    shard_count: int
    #: Grows by one with every change.
    version: int
    created_at: datetime
    scheduled: int
    due: int
    in_flight: int
    dead: int
    #: The settings (`visibility_timeout`, `retry`, …) and all else that the node answered.
    raw: Mapping[str, Any]
    oldest_due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HeldBy:
    """What keeps a watermark from being later."""

    reason: HeldReason
    #: None for `resizing`.
    shard: int | None = None
    #: The message.
    id: str | None = None
    #: Its due time.
    due_at: datetime | None = None
    #: When its claim runs out, or its next attempt is due.
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """Up to when a topic is done."""

    #: Everything that was due before this moment is done. It never goes back.
    watermark: datetime
    #: Whether it is the moment that was waited for, or later; None where none was named.
    reached: bool | None = None
    #: None: nothing; it is the present.
    held_by: HeldBy | None = None
