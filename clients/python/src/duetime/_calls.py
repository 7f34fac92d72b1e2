"""Every operation as a generator of steps, without I/O. The synchronous and the asynchronous client drive the same.

A generator yields `Send` and gets a `Reply` or a `Lost`, or yields `Pause` and gets None.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias, TypeVar

from . import _answers, _trace, _wire
from ._types import (
    ApiError,
    Cancelled,
    Claimed,
    ClaimedAny,
    DuetimeError,
    Duration,
    Enqueued,
    ForeignAnswer,
    ItemError,
    Message,
    NewMessage,
    NoAnswer,
    Rescheduled,
    Settled,
    TopicInfo,
    Watermark,
)

T = TypeVar("T")

#: The header that says until when a request may be begun, in milliseconds since the Unix epoch.
NOT_AFTER = "Duetime-Not-After"
#: Longest pause between two tries, before jitter. Jitter: "full jitter", AWS Architecture Blog, 2015.
PAUSE_MAX_S = 5.0
PAUSE_FIRST_S = 0.1
#: Codes of a 503 that leaves open whether the request was carried out; without a code it is a balancer's.
_MAYBE_DONE = ("store_unavailable", "timeout", "")
#: Clocks that differ by less than this agree.
CLOCKS_APART_S = 3.0
#: Messages, and bytes of JSON, in one request of a stream; a message of more bytes goes alone.
BATCH_ITEMS = 500
BATCH_BYTES = 1 << 20
#: Ids or receipts in one request.
IDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Send:
    method: str
    path: str
    headers: dict[str, str]
    content: bytes | None
    #: Seconds to wait for the answer.
    timeout: float


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer came. `maybe_done`: the request may have reached the node."""

    reason: str
    maybe_done: bool


Steps: TypeAlias = Generator[Send | Pause, Reply | Lost | None, T]


class Calls:
    """What the node is asked, and how often."""

    def __init__(
        self,
        token: str | None,
        timeout: float,
        retry_for: float,
        request_id: Callable[[], str | None] | None = None,
    ) -> None:
        self.timeout, self.retry_for = timeout, retry_for
        self._request_id = request_id
        self._headers = {"user-agent": "duetime-python/0.1.0", "accept": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token.strip()}"
        #: How far the node's clock is ahead of this machine's, by the Date of an answer.
        self._ahead_s = 0.0

    # One request.

    def request(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        wait: float = 0.0,
        timeout: float | None = None,
        retry_for: float | None = None,
        end: float | None = None,
    ) -> Steps[tuple[Reply, bool]]:
        """Sends a request until it is answered, or `retry_for` has passed, or `end` by the monotonic clock.

        Returns the answer, and whether an earlier try may have been carried out. `wait`: how long the node may wait.
        `timeout`: instead of the client's, where it is shorter.
        """
        headers = {**self._headers, **_trace.headers()}
        # The same for all tries.
        given = _wire.request_id(self._request_id() if self._request_id else None)
        if given is not None:
            headers[_answers.REQUEST_ID] = given
        if content is not None:
            headers["content-type"] = "application/json"
        limit = (self.timeout if timeout is None else min(timeout, self.timeout)) + wait
        tries = _Tries(self.retry_for if retry_for is None else retry_for, end)
        repeated, is_clock_known = False, False
        while True:
            if method != "GET":
                headers[NOT_AFTER] = str(int((time.time() + self._ahead_s + limit) * 1000))
            answer = yield Send(method, path, headers, content, limit)
            error: DuetimeError
            if isinstance(answer, Reply):
                self._see_clock(answer)
                if answer.status == 412 and not is_clock_known:
                    is_clock_known = True
                    continue
                problem = _answers.problem(answer.status, answer.headers, answer.content)
                if problem is None:
                    return answer, repeated
                if not problem.retryable:
                    raise problem
                error = problem
                repeated |= problem.status not in (429, 503) or problem.code in _MAYBE_DONE
                pause = tries.pause(problem.retry_after)
            elif isinstance(answer, Lost):
                error = NoAnswer(answer.reason, answer.maybe_done or repeated, given)
                repeated |= answer.maybe_done
                pause = tries.pause(None)
            else:
                raise AssertionError("a driver answers each request")
            if pause is None:
                raise error
            yield Pause(pause)

    def _see_clock(self, answer: Reply) -> None:
        try:
            ahead = parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()
        except (KeyError, ValueError, TypeError):
            return
        # The Date has whole seconds, some of which passed on the way.
        self._ahead_s = ahead if abs(ahead) > CLOCKS_APART_S else 0.0

    def _json(self, method: str, path: str, has: str, body: object = None) -> Steps[Any]:
        """`has`: see `_answers.read`."""
        content = None if body is None else _wire.dumps(body)
        reply, _ = yield from self.request(method, path, content)
        return _answers.read(reply.content, reply.headers, has)

    def _results(
        self,
        path: str,
        items: Sequence[T],
        content_of: Callable[[list[T]], bytes],
        retry_for: float | None = None,
        timeout: float | None = None,
    ) -> Steps[list[tuple[Any, bool]]]:
        """Sends items and returns a result for each; items that failed for a passing reason are sent again."""
        results: list[tuple[Any, bool]] = [({}, False)] * len(items)
        tries = _Tries(self.retry_for if retry_for is None else retry_for)
        open_ones, again = list(range(len(items))), set[int]()
        while open_ones:
            content = content_of([items[at] for at in open_ones])
            reply, repeated = yield from self.request("POST", path, content, timeout=timeout, end=tries.end)
            answers = _answers.read(reply.content, reply.headers, "results")["results"]
            is_list = isinstance(answers, list) and all(map(_answers.is_item, answers))
            if not is_list or len(answers) != len(open_ones):
                text = f"{path} did not answer one result for each of {len(open_ones)} items"
                raise ForeignAnswer(text, reply.headers.get(_answers.REQUEST_ID))
            failed = []
            for at, answer in zip(open_ones, answers, strict=True):
                results[at] = (answer, repeated or at in again)
                if "error" in answer:
                    answer["error"]["request_id"] = reply.headers.get(_answers.REQUEST_ID)
                if _answers.is_retryable_item(answer):
                    failed.append(at)
            pause = tries.pause(None) if failed else None
            if pause is None:
                break
            again.update(failed)
            open_ones = failed
            yield Pause(pause)
        return results

    # Topics.

    def topics(self) -> Steps[list[TopicInfo]]:
        found = yield from self._json("GET", "/v1/topics", "topics")
        return [_answers.topic(each) for each in found["topics"]]

    def put_topic(self, topic: str, settings: Mapping[str, Any]) -> Steps[TopicInfo]:
        found = yield from self._json("PUT", _path(topic), "name", dict(settings))
        return _answers.topic(found)

    def get_topic(self, topic: str) -> Steps[TopicInfo]:
        found = yield from self._json("GET", _path(topic), "name")
        return _answers.topic(found)

    def delete_topic(self, topic: str, force: bool) -> Steps[str]:
        path = _path(topic) + ("?force=true" if force else "")
        try:
            found = yield from self._json("DELETE", path, "outcome")
        except ApiError as error:
            if error.code == "unknown_topic":
                return "unknown"
            raise
        return str(found["outcome"])

    def watermark(self, topic: str, until: datetime | None, wait: float) -> Steps[Watermark]:
        path = f"{_path(topic)}/watermark"
        if until is None:
            wait = 0.0
        else:
            path += f"?until={_wire.moment(until)}&wait={int(wait * 1000)}ms"
        reply, _ = yield from self.request("GET", path, wait=wait)
        return _answers.watermark(_answers.read(reply.content, reply.headers, "watermark"))

    # Messages.

    def enqueue(self, topic: str, message: NewMessage) -> Steps[Enqueued]:
        path = f"{_path(topic)}/messages"
        reply, repeated = yield from self.request("POST", path, message.line)
        found = _answers.read(reply.content, reply.headers, "outcome")
        return _answers.enqueued(found, repeated, message.has_made_id)

    def enqueue_batch(
        self, topic: str, messages: Sequence[NewMessage], first: int
    ) -> Steps[list[Enqueued | ItemError]]:
        """`first`: the index of the first of them in the call of the user."""

        def array(some: list[NewMessage]) -> bytes:
            return b"[" + b",".join(message.line for message in some) + b"]"

        try:
            results = yield from self._results(f"{_path(topic)}/messages", messages, array)
        except ApiError as error:
            if error.status != 413 or len(messages) > 1:
                raise
            # What is refused is the body, which is this message.
            id, field, request_id = messages[0].id, error.field, error.request_id
            return [ItemError(error.code, error.detail, first, error.retryable, id, field, request_id)]
        return [
            _answers.item_error(found, first + at)
            or _answers.enqueued(found, repeated, messages[at].has_made_id)
            for at, (found, repeated) in enumerate(results)
        ]

    def get(self, topic: str, id: str) -> Steps[Message | None]:
        try:
            found = yield from self._json("GET", f"{_path(topic)}/messages/{_wire.part(id)}", "id")
        except ApiError as error:
            if error.code == "unknown_message":
                return None
            raise
        return _answers.message(found)

    def cancel(self, topic: str, ids: Sequence[str]) -> Steps[list[Cancelled | ItemError]]:
        refuse_text("ids", ids)
        results: list[Cancelled | ItemError] = []
        for begin in range(0, len(ids), IDS_MAX):
            some = ids[begin : begin + IDS_MAX]
            found = yield from self._results(f"{_path(topic)}/cancel", some, lambda part: _wire.dumps({"ids": part}))
            results += [
                _answers.item_error(answer, begin + at) or _answers.cancelled(answer, some[at], repeated)
                for at, (answer, repeated) in enumerate(found)
            ]
        return results

    def reschedule(self, topic: str, id: str, delay: Duration | None, due_at: datetime | None) -> Steps[Rescheduled]:
        body = _wire.due(delay, due_at)
        found = yield from self._json("PATCH", f"{_path(topic)}/messages/{_wire.part(id)}", "outcome", body)
        return _answers.rescheduled(found, id)

    # Consumers.

    def claim(
        self,
        topic: str,
        max: int,
        wait: float,
        visibility: Duration | None,
        ack: Sequence[str],
        consumer: str | None = None,
        timeout: float | None = None,
        retry_for: float | None = None,
    ) -> Steps[Claimed]:
        refuse_text("ack", ack)
        body = _claim(max, wait, visibility, consumer)
        if ack:
            body["ack"] = list(ack)
        path, content = f"{_path(topic)}/claim", _wire.dumps(body)
        reply, _ = yield from self.request("POST", path, content, wait=wait, timeout=timeout, retry_for=retry_for)
        claimed = _answers.claim(_answers.read(reply.content, reply.headers, "messages"), reply.headers)
        if len(claimed.results) != len(ack):
            text = f"{path} did not answer one result for each of {len(ack)} receipts"
            raise ForeignAnswer(text, reply.headers.get(_answers.REQUEST_ID))
        return claimed

    def claim_any(
        self,
        topics: Mapping[str, int],
        max: int,
        wait: float,
        visibility: Duration | None,
        ack: Sequence[str],
        consumer: str | None,
    ) -> Steps[ClaimedAny]:
        refuse_text("ack", ack)
        body = {"topics": dict(topics), **_claim(max, wait, visibility, consumer)}
        if ack:
            body["ack"] = list(ack)
        reply, _ = yield from self.request("POST", "/v1/claim", _wire.dumps(body), wait=wait)
        claimed = _answers.claim_any(_answers.read(reply.content, reply.headers, "messages"), reply.headers)
        if len(claimed.results) != len(ack):
            text = f"/v1/claim did not answer one result for each of {len(ack)} receipts"
            raise ForeignAnswer(text, reply.headers.get(_answers.REQUEST_ID))
        return claimed

    def settle(
        self,
        topic: str,
        verb: str,
        receipts: Sequence[str],
        more: Mapping[str, object],
        timeout: float | None = None,
        retry_for: float | None = None,
    ) -> Steps[list[Settled | ItemError]]:
        refuse_text("receipts", receipts)
        results: list[Settled | ItemError] = []
        for begin in range(0, len(receipts), IDS_MAX):
            some = receipts[begin : begin + IDS_MAX]
            content_of = lambda part: _wire.dumps({"receipts": part, **more})  # noqa: E731
            found = yield from self._results(f"{_path(topic)}/{verb}", some, content_of, retry_for, timeout)
            results += [
                _answers.item_error(answer, begin + at) or _answers.settled(answer)
                for at, (answer, _) in enumerate(found)
            ]
        return results

    def extend_once(
        self, topic: str, receipts: Sequence[str], visibility: Duration, timeout: float
    ) -> Steps[list[Settled | ItemError]]:
        """One try: the beat after it is the next."""
        content = _wire.dumps({"receipts": list(receipts), "visibility_timeout": _wire.duration(visibility)})
        path = f"{_path(topic)}/extend"
        reply, _ = yield from self.request("POST", path, content, timeout=timeout, retry_for=0)
        results = _answers.read(reply.content, reply.headers, "results")["results"]
        return [_answers.item_error(each, at) or _answers.settled(each) for at, each in enumerate(results)]


def one(results: Sequence[T | ItemError]) -> T:
    """The only result; an error of the item is raised."""
    (result,) = results
    if isinstance(result, ItemError):
        status = 503 if result.retryable else 400
        raise ApiError(status, result.code, result.detail, field=result.field, request_id=result.request_id)
    return result


def refuse_text(name: str, given: Sequence[str]) -> None:
    """One id or receipt instead of a list of them, of which each letter would be taken for one, is a TypeError."""
    if isinstance(given, (str, bytes, bytearray)):
        raise TypeError(f"{name} is a list of texts, and this is one, {given!r:.200}; write [{given!r:.200}]")


class Batcher:
    """Cuts a stream of messages into batches of bounded size."""

    def __init__(self) -> None:
        self._batch: list[NewMessage] = []
        self._bytes = 0
        self._taken = 0

    def has_room_for(self, message: NewMessage) -> bool:
        """False if the batch is to be sent before this message is added. What is no NewMessage is a TypeError."""
        if not isinstance(message, NewMessage):
            raise TypeError(f"messages has {message!r:.200}, which is no NewMessage; write NewMessage(…)")
        return not self._batch or self._bytes + len(message.line) < BATCH_BYTES

    def add(self, message: NewMessage) -> bool:
        """Returns True if the batch is full."""
        self._batch.append(message)
        # With its comma.
        self._bytes += len(message.line) + 1
        return len(self._batch) >= BATCH_ITEMS or self._bytes >= BATCH_BYTES

    def take(self) -> tuple[list[NewMessage], int]:
        """The batch, and the index of its first message in the stream."""
        batch, first = self._batch, self._taken
        self._batch, self._bytes, self._taken = [], 0, first + len(batch)
        return batch, first


class _Tries:
    """When to try again: with full jitter, not before the node asks for it, and not after `retry_for`."""

    def __init__(self, retry_for: float, end: float | None = None) -> None:
        #: By the monotonic clock.
        self.end = time.monotonic() + retry_for if end is None else end
        self._count = 0

    def pause(self, at_least: float | None) -> float | None:
        """Seconds until the next try; None if there is none."""
        ceiling = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0**self._count)
        self._count += 1
        pause = (at_least or 0.0) + random.uniform(0, ceiling)
        return pause if time.monotonic() + pause <= self.end else None


def _claim(max: int, wait: float, visibility: Duration | None, consumer: str | None) -> dict[str, object]:
    body: dict[str, object] = {"max": max, "wait": f"{int(wait * 1000)}ms"}
    if visibility is not None:
        body["visibility_timeout"] = _wire.duration(visibility)
    if consumer is not None:
        body["consumer"] = consumer
    return body


def _path(topic: str) -> str:
    return f"/v1/topics/{_wire.part(topic)}"
