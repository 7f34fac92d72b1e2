"""Reads what a node answers. Fields that a newer node adds are ignored."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from . import _wire
from ._types import (
    RETRYABLE,
    ApiError,
    Became,
    Cancelled,
    Claimed,
    ClaimedAny,
    ClaimedMessage,
    ClaimFailure,
    Death,
    Enqueued,
    ForeignAnswer,
    HeldBy,
    ItemError,
    Message,
    Rescheduled,
    Settled,
    TopicInfo,
    Watermark,
    is_passing,
)

#: The header of the id of a request, in requests and in answers.
REQUEST_ID = "x-request-id"
#: How much of an answer that is not understood is shown.
_SHOWN_MAX = 200
#: Longest pause that is taken from a node or a balancer; a thread cannot wait for any longer one.
_RETRY_AFTER_MAX_S = 86_400.0
#: The lowest status that no done request has.
_REFUSAL_MIN = 300


def read(content: bytes, headers: Mapping[str, str], has: str | None = None) -> Any:
    """The object that an answer is. `has`: a field without which it is no answer of a node."""
    try:
        found = _wire.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict) or (has is not None and found.get(has) is None):
        raise _foreign(content, headers)
    return found


def _foreign(content: bytes, headers: Mapping[str, str], status: int | None = None) -> ForeignAnswer:
    shown = content[:_SHOWN_MAX].decode(errors="replace")
    code = "" if status is None else f"status {status}, "
    text = f"this is no answer of a node ({code}{shown!r}); is the address right?"
    return ForeignAnswer(text, headers.get(REQUEST_ID))


def problem(status: int, headers: Mapping[str, str], content: bytes) -> ApiError | None:
    """The refusal that an answer is; None if it is an outcome, which a refusal about one message is too."""
    kind, request_id = headers.get("content-type", ""), headers.get(REQUEST_ID)
    if kind.startswith("application/problem+json"):
        found = read(content, headers)
        if "outcome" in found:
            return None
        return ApiError(
            status,
            str(found.get("code", "")),
            str(found.get("detail", "")),
            title=str(found.get("title", "")),
            field=found.get("field"),
            retry_after=_retry_after(headers),
            request_id=request_id,
            retryable=found.get("retryable"),
        )
    if is_passing(status):
        # A balancer in front of the node.
        return ApiError(status, "", "no node answered", retry_after=_retry_after(headers), request_id=request_id)
    # What a node refuses is a problem; other servers say no in JSON too.
    if status >= _REFUSAL_MIN or "json" not in kind:
        raise _foreign(content, headers, status)
    return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return min(float(text), _RETRY_AFTER_MAX_S)
    # Or a date, by the clock of the one who answers.
    until, now = _date(text), _date(headers.get("date", ""))
    if until is None:
        return None
    return min(max(float(math.ceil(until - (time.time() if now is None else now))), 0.0), _RETRY_AFTER_MAX_S)


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def is_item(found: object) -> bool:
    """True if it is what became of one item of many."""
    if not isinstance(found, dict):
        return False
    return isinstance(found.get("outcome"), str) or isinstance(found.get("error"), dict)


def is_retryable_item(found: Mapping[str, Any]) -> bool:
    return "error" in found and _is_retryable(found["error"])


def _is_retryable(error: Mapping[str, Any]) -> bool:
    """As the node says, or, where it does not, by the code."""
    said = error.get("retryable")
    return said if isinstance(said, bool) else error.get("code") in RETRYABLE


def item_error(found: Mapping[str, Any], index: int, request_id: str | None = None) -> ItemError | None:
    """`request_id`: of the request that it was in, where the error does not have it."""
    if (error := found.get("error")) is None:
        return None
    id, field, request_id = found.get("id"), error.get("field"), error.get("request_id", request_id)
    return ItemError(error["code"], error["detail"], index, _is_retryable(error), id, field, request_id)


def enqueued(found: Mapping[str, Any], repeated: bool, is_made: bool) -> Enqueued:
    outcome = found["outcome"]
    if outcome == "duplicate" and is_made and repeated:
        # Nobody else has an id that was made here: an earlier try stored it.
        outcome = "scheduled"
    return Enqueued(
        id=found["id"],
        outcome=outcome,
        shard=found["shard"],
        due_at=_time(found, "due_at"),
        smeared_ms=found.get("smeared_ms"),
        late_by_ms=found.get("late_by_ms"),
        in_flight=found.get("in_flight", False),
        replicas=found.get("replicas"),
        repeated=repeated,
        became=_became(found),
    )


def cancelled(found: Mapping[str, Any], id: str, repeated: bool) -> Cancelled:
    return Cancelled(id, found["outcome"], found.get("replicas"), repeated, _became(found))


def _became(found: Mapping[str, Any]) -> Became | None:
    if (told := found.get("became")) is None:
        return None
    at, due_at = _wire.time_of(told["at"]), _time(told, "due_at")
    return Became(told["outcome"], at, told.get("attempts"), due_at, told.get("late_by_ms"), told.get("version"))


def rescheduled(found: Mapping[str, Any], id: str) -> Rescheduled:
    return Rescheduled(
        id=id,
        outcome=found["outcome"],
        due_at=_time(found, "due_at"),
        smeared_ms=found.get("smeared_ms"),
        late_by_ms=found.get("late_by_ms"),
        replicas=found.get("replicas"),
    )


def settled(found: Mapping[str, Any]) -> Settled:
    return Settled(found["outcome"], found.get("id"), found.get("receipt"), found.get("replicas"))


def _time(found: Mapping[str, Any], name: str) -> Any:
    return None if found.get(name) is None else _wire.time_of(found[name])


def message(found: Mapping[str, Any]) -> Message:
    death = found.get("death")
    return Message(
        id=found["id"],
        state=found["state"],
        due_at=_wire.time_of(found["due_at"]),
        visible_at=_wire.time_of(found["visible_at"]),
        attempts=found["attempts"],
        redrives=found["redrives"],
        shard=found["shard"],
        payload=_wire.payload_of(found),
        headers=found["headers"],
        version=found.get("version"),
        expires_at=_time(found, "expires_at"),
        max_attempts=found.get("max_attempts"),
        visibility_timeout=found.get("visibility_timeout"),
        repeat=found.get("repeat"),
        death=death and Death(_wire.time_of(death["at"]), death["reason"]),
    )


def claimed(found: Mapping[str, Any]) -> ClaimedMessage:
    return ClaimedMessage(
        id=found["id"],
        receipt=found["receipt"],
        due_at=_wire.time_of(found["due_at"]),
        attempt=found["attempt"],
        delivery_id=found["delivery_id"],
        payload=_wire.payload_of(found),
        headers=found["headers"],
        deadline=_time(found, "deadline"),
        traceparent=found.get("traceparent"),
    )


def claim(found: Mapping[str, Any], headers: Mapping[str, str]) -> Claimed:
    request_id = headers.get(REQUEST_ID)
    results = [item_error(each, at, request_id) or settled(each) for at, each in enumerate(found.get("results", ()))]
    error = None
    if (refused := found.get("error")) is not None:
        title, field = refused.get("title", ""), refused.get("field")
        status, code, detail, retry_after = refused["status"], refused["code"], refused["detail"], _retry_after(headers)
        more = {"title": title, "field": field, "retry_after": retry_after, "request_id": request_id}
        error = ApiError(status, code, detail, **more, retryable=refused.get("retryable"))
    return Claimed([claimed(each) for each in found["messages"]], results, error)


def claim_any(found: Mapping[str, Any], headers: Mapping[str, str]) -> ClaimedAny:
    failed = [ClaimFailure(each["topic"], each["code"], each["detail"], each["retryable"]) for each in found["failed"]]
    of_one = claim(found, headers)
    return ClaimedAny(found.get("topic"), list(of_one), failed, of_one.results, of_one.error)


def topic(found: Mapping[str, Any]) -> TopicInfo:
    return TopicInfo(
        name=found["name"],
        shard_count=found["shard_count"],
        version=found["version"],
        created_at=_wire.time_of(found["created_at"]),
        scheduled=found["scheduled"],
        due=found["due"],
        in_flight=found["in_flight"],
        dead=found["dead"],
        oldest_due_at=_time(found, "oldest_due_at"),
        raw=found,
    )


def watermark(found: Mapping[str, Any]) -> Watermark:
    held_by = None
    if (held := found.get("held_by")) is not None:
        due_at, until = _time(held, "due_at"), _time(held, "until")
        held_by = HeldBy(held["reason"], held.get("shard"), held.get("id"), due_at, until)
    return Watermark(_wire.time_of(found["watermark"]), found.get("reached"), held_by)
