"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Event
from types import TracebackType
from typing import Any, TypeVar

import httpx

from . import _calls, _http
from ._calls import Batcher, Calls, Steps, one
from ._consume import Delivery, consume
from ._types import (
    Cancelled,
    Claimed,
    ClaimedAny,
    Duration,
    Enqueued,
    ItemError,
    Message,
    NewMessage,
    OnConflict,
    Repeat,
    Rescheduled,
    Settled,
    SettleOutcome,
    TopicInfo,
    Watermark,
)

T = TypeVar("T")


class Duetime:
    """A client of Duetime. Threads may share it.

    `url`: of a node, or of a balancer in front of several, such as `"http://127.0.0.1:3830"`. `timeout`: seconds to
    wait for an answer. `retry_for`: seconds for which a call that found no node, or was asked to come back, is sent
    again; 0: never. `http`: an own `httpx.Client`, for TLS with own authorities or certificates. `request_id`: is
    called for each request and answers its id, which the node's log has, such as the `get` of a `ContextVar`; all
    tries have the same. One that is not of 1 to 64 letters, digits and `-_.:/+=`, or None: the node makes one.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retry_for: float = 30.0,
        http: httpx.Client | None = None,
        request_id: Callable[[], str | None] | None = None,
    ) -> None:
        self._calls = Calls(token, timeout, retry_for, request_id)
        self._base = _http.base(url)
        self._http = http or httpx.Client(trust_env=False, limits=_http.LIMITS)

    def __enter__(self) -> Duetime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def topic(self, name: str) -> Topic:
        """The topic of that name. Asks the node nothing."""
        return Topic(self, name)

    def topics(self) -> list[TopicInfo]:
        """Every topic that the token is for."""
        return self._run(self._calls.topics())

    def claim_any(
        self,
        topics: Mapping[str, int],
        max: int = 1,
        *,
        wait: timedelta | float = 0.0,
        visibility: Duration | None = None,
        ack: Sequence[str] = (),
        consumer: str | None = None,
    ) -> ClaimedAny:
        """Claims up to `max` due messages of the first of several topics that has any.

        Which topic is asked first is drawn by the weights, 1 to 1000. Waits up to `wait` (60 s at most) for the first
        message to fall due in any of them. Ack at the topic that the answer names, or with a later claim from it: the
        receipts of `ack` are acked first, as `Topic.claim` does, each in that of the topics that it is of.
        """
        steps = self._calls.claim_any(topics, max, _http.seconds(wait), visibility, ack, consumer)
        return self._run(steps)

    def _run(self, steps: Steps[T]) -> T:
        answer: _calls.Reply | _calls.Lost | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = None
            if isinstance(step, _calls.Pause):
                time.sleep(step.seconds)
                continue
            try:
                answer = self._send(step)
            except _http.LOST as error:
                answer = _http.lost(error)

    def _send(self, step: _calls.Send) -> _calls.Reply:
        request = _http.build(self._http, self._base, step)
        body = _http.Body(step, request, time.monotonic())
        response = self._http.send(request, stream=True)
        try:
            body.begin()
            for piece in response.iter_bytes():
                body.add(piece)
        finally:
            response.close()
        return body.reply(response)


class Topic:
    """A topic: what is enqueued into it, cancelled, and consumed."""

    def __init__(self, duetime: Duetime, name: str) -> None:
        self.name = name
        self._run, self._calls = duetime._run, duetime._calls

    def create(self, **settings: Any) -> TopicInfo:
        """Creates or changes the topic: `visibility_timeout="30s"`, `retry={"max_attempts": 5}`, `shards=8`, …"""
        return self._run(self._calls.put_topic(self.name, settings))

    def info(self) -> TopicInfo:
        """Its settings and counts."""
        return self._run(self._calls.get_topic(self.name))

    def delete(self, *, force: bool = False) -> str:
        """Deletes it: `deleted`, `deleting` or `unknown`. `force`: with the messages in it."""
        return self._run(self._calls.delete_topic(self.name, force))

    def watermark(self, until: datetime | None = None, *, wait: timedelta | float = 0.0) -> Watermark:
        """Up to when it is done: everything that was due before `watermark` is settled, cancelled, expired or dead.

        With `until`, waits up to `wait` (60 s at most) for the watermark to be that moment or later, see `reached`. For a
        topic that was created with `watermark=True`; of another it is refused, `topic_has_no_watermark`.
        """
        return self._run(self._calls.watermark(self.name, until, _http.seconds(wait)))

    def enqueue(
        self,
        payload: object = b"",
        *,
        id: str | None = None,
        delay: Duration | None = None,
        due_at: datetime | None = None,
        headers: dict[str, str] | None = None,
        on_conflict: OnConflict | None = None,
        expires: Duration | None = None,
        expires_at: datetime | None = None,
        max_attempts: int | None = None,
        visibility_timeout: Duration | None = None,
        repeat: Repeat | None = None,
    ) -> Enqueued:
        """Enqueues one message; see NewMessage. Safe to send again: the id is made here if there is none."""
        message = NewMessage(
            payload,
            id=id,
            delay=delay,
            due_at=due_at,
            headers=headers,
            on_conflict=on_conflict,
            expires=expires,
            expires_at=expires_at,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            repeat=repeat,
        )
        return self._run(self._calls.enqueue(self.name, message))

    def enqueue_many(self, messages: Iterable[NewMessage]) -> list[Enqueued | ItemError]:
        """Enqueues many messages; a result for each, in order. One that is refused takes no other along."""
        return list(self.enqueue_stream(messages))

    def enqueue_stream(self, messages: Iterable[NewMessage]) -> Iterator[Enqueued | ItemError]:
        """Enqueues a stream of any length, batch by batch; the results come while it is read."""
        batcher = Batcher()
        for message in messages:
            if not batcher.has_room_for(message):
                yield from self._enqueue(batcher)
            if batcher.add(message):
                yield from self._enqueue(batcher)
        yield from self._enqueue(batcher)

    def _enqueue(self, batcher: Batcher) -> list[Enqueued | ItemError]:
        batch, first = batcher.take()
        return self._run(self._calls.enqueue_batch(self.name, batch, first)) if batch else []

    def get(self, id: str) -> Message | None:
        """The message of that id; None if there is none: never enqueued, cancelled, or delivered already."""
        return self._run(self._calls.get(self.name, id))

    def cancel(self, id: str) -> Cancelled:
        """Cancels a message. After `cancelled` it is never delivered; `in_flight`: it may be delivered just now."""
        return one(self.cancel_many([id]))

    def cancel_many(self, ids: Sequence[str]) -> list[Cancelled | ItemError]:
        """Cancels many messages; a result for each, in order."""
        return self._run(self._calls.cancel(self.name, ids))

    def reschedule(self, id: str, *, delay: Duration | None = None, due_at: datetime | None = None) -> Rescheduled:
        """Gives a message another due time."""
        return self._run(self._calls.reschedule(self.name, id, delay, due_at))

    def claim(
        self,
        max: int = 1,
        *,
        wait: timedelta | float = 0.0,
        visibility: Duration | None = None,
        ack: Sequence[str] = (),
        consumer: str | None = None,
    ) -> Claimed:
        """Claims up to `max` due messages, and waits up to `wait` (60 s at most) for the first to fall due.

        The receipts of `ack` are acked first, see `results` of what is returned; if one of them is neither `ok` nor
        `already`, the claim does not wait. An ack that failed is not tried again here, and neither is a claim that
        failed after the acks (`error`). `consumer`: the name of whoever claims, in the list of consumers that a node
        answers, in 100 bytes.
        """
        steps = self._calls.claim(self.name, max, _http.seconds(wait), visibility, ack, consumer)
        return self._run(steps)

    def ack(self, receipts: Sequence[str]) -> list[Settled | ItemError]:
        """Done."""
        return self._settle("ack", receipts)

    def nack(
        self, receipts: Sequence[str], *, delay: Duration | None = None, reason: str | None = None, dead: bool = False
    ) -> list[Settled | ItemError]:
        """Not done: again after `delay` or the topic's backoff, or, with `dead`, a dead letter at once."""
        return self._settle("nack", receipts, **_http.nack(delay, reason, dead))

    def extend(self, receipts: Sequence[str], visibility: Duration | None = None) -> list[Settled | ItemError]:
        """More time, from now on. Answers new receipts: use these from then on."""
        return self._settle("extend", receipts, **_http.extend(visibility))

    def release(self, receipts: Sequence[str]) -> list[Settled | ItemError]:
        """Not begun: due again at once, and the claim costs no attempt."""
        return self._settle("release", receipts)

    def _settle(self, verb: str, receipts: Sequence[str], **more: object) -> list[Settled | ItemError]:
        return self._run(self._calls.settle(self.name, verb, receipts, more))

    def consume(
        self,
        handler: Callable[[Delivery], object],
        *,
        concurrency: int = 10,
        visibility: timedelta | float = 30.0,
        wait: timedelta | float = 5.0,
        grace: timedelta | float = 30.0,
        stop: Event | None = None,
        on_lost: Callable[[Delivery, SettleOutcome], object] | None = None,
        consumer: str | None = None,
    ) -> None:
        """Handles what falls due, in `concurrency` threads, until `stop` is set.

        A message is acked when `handler` returns and nacked when it raises, unless the handler settled it. Each is
        extended by every third of `visibility`. A thread cannot be interrupted: a long handler looks at
        `delivery.is_lost`. `on_lost`: called once for a message that is not the handler's any more (`cancelled`: undo
        what was done); it is to return soon, because heartbeats wait for it. At the stop no more is claimed, handlers
        have `grace` to end, then `is_lost` is true, and what is not settled within 5 s is released. A claim waits for a
        third of `visibility` at most, whatever `wait` says. `consumer`: as `claim` has it.
        """
        consume(self, handler, concurrency, visibility, wait, grace, stop or Event(), on_lost, consumer)
