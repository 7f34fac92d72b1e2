"""The asynchronous client: the same names as the synchronous one, a test holds them equal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

import httpx

from . import _calls, _http
from ._calls import Batcher, Calls, Steps, one
from ._consume_async import AsyncDelivery, consume
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


class AsyncDuetime:
    """An asynchronous client of Duetime. Tasks of one event loop may share it.

    `url`: of a node, or of a balancer in front of several, such as `"http://127.0.0.1:3830"`. `timeout`: seconds to
    wait for an answer. `retry_for`: seconds for which a call that found no node, or was asked to come back, is sent
    again; 0: never. `http`: an own `httpx.AsyncClient`, for TLS with own authorities or certificates. `request_id`: is
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
        http: httpx.AsyncClient | None = None,
        request_id: Callable[[], str | None] | None = None,
    ) -> None:
        self._calls = Calls(token, timeout, retry_for, request_id)
        self._base = _http.base(url)
        self._http = http or httpx.AsyncClient(trust_env=False, limits=_http.LIMITS)

    async def __aenter__(self) -> AsyncDuetime:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def topic(self, name: str) -> AsyncTopic:
        """The topic of that name. Asks the node nothing."""
        return AsyncTopic(self, name)

    async def topics(self) -> list[TopicInfo]:
        """Every topic that the token is for."""
        return await self._run(self._calls.topics())

    async def claim_any(
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
        return await self._run(steps)

    async def _run(self, steps: Steps[T]) -> T:
        answer: _calls.Reply | _calls.Lost | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = None
            if isinstance(step, _calls.Pause):
                await asyncio.sleep(step.seconds)
                continue
            try:
                answer = await self._send(step)
            except _http.LOST as error:
                answer = _http.lost(error)

    async def _send(self, step: _calls.Send) -> _calls.Reply:
        request = _http.build(self._http, self._base, step)
        body = _http.Body(step, request, time.monotonic())
        response = await self._http.send(request, stream=True)
        try:
            body.begin()
            async for piece in response.aiter_bytes():
                body.add(piece)
        finally:
            await response.aclose()
        return body.reply(response)


class AsyncTopic:
    """A topic: what is enqueued into it, cancelled, and consumed."""

    def __init__(self, duetime: AsyncDuetime, name: str) -> None:
        self.name = name
        self._run, self._calls = duetime._run, duetime._calls

    async def create(self, **settings: Any) -> TopicInfo:
        """Creates or changes the topic: `visibility_timeout="30s"`, `retry={"max_attempts": 5}`, `shards=8`, …"""
        return await self._run(self._calls.put_topic(self.name, settings))

    async def info(self) -> TopicInfo:
        """Its settings and counts."""
        return await self._run(self._calls.get_topic(self.name))

    async def delete(self, *, force: bool = False) -> str:
        """Deletes it: `deleted`, `deleting` or `unknown`. `force`: with the messages in it."""
        return await self._run(self._calls.delete_topic(self.name, force))

    async def watermark(self, until: datetime | None = None, *, wait: timedelta | float = 0.0) -> Watermark:
        """Up to when it is done: everything that was due before `watermark` is settled, cancelled, expired or dead.

        With `until`, waits up to `wait` (60 s at most) for the watermark to be that moment or later, see `reached`. For a
        topic that was created with `watermark=True`; of another it is refused, `topic_has_no_watermark`.
        """
        return await self._run(self._calls.watermark(self.name, until, _http.seconds(wait)))

    async def enqueue(
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
        return await self._run(self._calls.enqueue(self.name, message))

    async def enqueue_many(
        self, messages: Iterable[NewMessage] | AsyncIterable[NewMessage]
    ) -> list[Enqueued | ItemError]:
        """Enqueues many messages; a result for each, in order. One that is refused takes no other along."""
        return [result async for result in self.enqueue_stream(messages)]

    async def enqueue_stream(
        self, messages: Iterable[NewMessage] | AsyncIterable[NewMessage]
    ) -> AsyncIterator[Enqueued | ItemError]:
        """Enqueues a stream of any length, batch by batch; the results come while it is read."""
        batcher = Batcher()
        async for message in _each(messages):
            if not batcher.has_room_for(message):
                for result in await self._enqueue(batcher):
                    yield result
            if batcher.add(message):
                for result in await self._enqueue(batcher):
                    yield result
        for result in await self._enqueue(batcher):
            yield result

    async def _enqueue(self, batcher: Batcher) -> list[Enqueued | ItemError]:
        batch, first = batcher.take()
        return await self._run(self._calls.enqueue_batch(self.name, batch, first)) if batch else []

    async def get(self, id: str) -> Message | None:
        """The message of that id; None if there is none: never enqueued, cancelled, or delivered already."""
        return await self._run(self._calls.get(self.name, id))

    async def cancel(self, id: str) -> Cancelled:
        """Cancels a message. After `cancelled` it is never delivered; `in_flight`: it may be delivered just now."""
        return one(await self.cancel_many([id]))

    async def cancel_many(self, ids: Sequence[str]) -> list[Cancelled | ItemError]:
        """Cancels many messages; a result for each, in order."""
        return await self._run(self._calls.cancel(self.name, ids))

    async def reschedule(
        self, id: str, *, delay: Duration | None = None, due_at: datetime | None = None
    ) -> Rescheduled:
        """Gives a message another due time."""
        return await self._run(self._calls.reschedule(self.name, id, delay, due_at))

    async def claim(
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
        return await self._run(steps)

    async def ack(self, receipts: Sequence[str]) -> list[Settled | ItemError]:
        """Done."""
        return await self._settle("ack", receipts)

    async def nack(
        self, receipts: Sequence[str], *, delay: Duration | None = None, reason: str | None = None, dead: bool = False
    ) -> list[Settled | ItemError]:
        """Not done: again after `delay` or the topic's backoff, or, with `dead`, a dead letter at once."""
        return await self._settle("nack", receipts, **_http.nack(delay, reason, dead))

    async def extend(self, receipts: Sequence[str], visibility: Duration | None = None) -> list[Settled | ItemError]:
        """More time, from now on. Answers new receipts: use these from then on."""
        return await self._settle("extend", receipts, **_http.extend(visibility))

    async def release(self, receipts: Sequence[str]) -> list[Settled | ItemError]:
        """Not begun: due again at once, and the claim costs no attempt."""
        return await self._settle("release", receipts)

    async def _settle(self, verb: str, receipts: Sequence[str], **more: object) -> list[Settled | ItemError]:
        return await self._run(self._calls.settle(self.name, verb, receipts, more))

    async def consume(
        self,
        handler: Callable[[AsyncDelivery], Awaitable[object]],
        *,
        concurrency: int = 10,
        visibility: timedelta | float = 30.0,
        wait: timedelta | float = 5.0,
        grace: timedelta | float = 30.0,
        stop: asyncio.Event | None = None,
        on_lost: Callable[[AsyncDelivery, SettleOutcome], object] | None = None,
        consumer: str | None = None,
    ) -> None:
        """Handles what falls due, in up to `concurrency` tasks, until `stop` is set.

        A message is acked when `handler` returns and nacked when it raises, unless the handler settled it. Each is
        extended by every third of `visibility`. `on_lost`: called once for a message that is not the handler's any more
        (`cancelled`: undo what was done); the handler is cancelled. At the stop no more is claimed, handlers have
        `grace` to end before they are cancelled, and the rest is released; if the task of this call is cancelled, so it
        is without `grace`, and after the claim that waits. A claim waits for a third of `visibility` at most, whatever
        `wait` says. `consumer`: as `claim` has it.
        """
        await consume(self, handler, concurrency, visibility, wait, grace, stop or asyncio.Event(), on_lost, consumer)


async def _each(messages: Iterable[NewMessage] | AsyncIterable[NewMessage]) -> AsyncIterator[NewMessage]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for message in messages:
            yield message
