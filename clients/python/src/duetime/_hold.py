"""A claim that is held: its receipt, until when, and how it ended. Both consumers keep one for each message."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ._calls import PAUSE_FIRST_S, PAUSE_MAX_S
from ._types import (
    ApiError,
    ClaimedMessage,
    DuetimeError,
    ItemError,
    NoAnswer,
    Settled,
    SettleOutcome,
    is_passing,
)

T = TypeVar("T")

log = logging.getLogger("duetime")

#: Most messages that one consumer handles at a time, and most that one claim may bring.
CONCURRENCY_MAX = 1000
CLAIM_MAX = 256
#: Beats begin after this share of the visibility; what is to be done is looked at in so many steps of it.
BEAT_SHARE = 3
STEPS = 12
#: A claim waits for this share of the visibility at most, which counts from before it was sent: what it brings can be
#: extended in time.
WAIT_SHARE = 3
#: A claim with acks waits for this share of the visibility at most, and the answers to it, to settlements and to
#: extensions are waited for as long: what is lost is sent again in time.
ACK_WAIT_SHARE = 6
#: How long the release of what is held is tried at a stop, and how long a handler that is told to end may take.
RELEASE_FOR_S = 5.0
CANCEL_MAX_S = 5.0


class Hold:
    """The claim of one message, counted from before it was asked for by this machine's monotonic clock."""

    def __init__(self, message: ClaimedMessage, claimed_at: float, visibility: float) -> None:
        #: What was claimed.
        self.message = message
        self._receipt = message.receipt
        #: An at-most-once message has nothing to extend or settle.
        self._is_bound = message.deadline is not None
        self._visibility = visibility
        self._lost: SettleOutcome | None = None
        self._settled: SettleOutcome | None = None
        #: True when the time to end at a stop is over: what the handler has not settled is released.
        self._is_taken_back = False
        self._renew(claimed_at)

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.message.id

    @property
    def payload(self) -> bytes:
        """The payload, bit for bit."""
        return self.message.payload

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.message.attempt

    def json(self) -> Any:
        """The payload, read as JSON."""
        return self.message.json()

    @property
    def is_lost(self) -> bool:
        """True if the handler is to end: the message was cancelled, may be another's, or is released at a stop."""
        return self._lost is not None or self._is_taken_back or self._has_run_out

    @property
    def _has_run_out(self) -> bool:
        return self._is_open and time.monotonic() >= self._held_until

    @property
    def _is_open(self) -> bool:
        return self._is_bound and self._lost is None and self._settled is None

    def _renew(self, since: float) -> None:
        self._held_until = since + self._visibility
        self._beat_at = since + self._visibility / BEAT_SHARE

    def _beaten(self, result: Settled | ItemError | None, since: float) -> SettleOutcome | None:
        """Takes what an extension answered; returns how the claim ended, if it did."""
        if isinstance(result, Settled) and result.receipt is not None:
            self._receipt = result.receipt
            self._renew(since)
            return None
        self._beat_at = time.monotonic() + self._visibility / STEPS
        return result.outcome if isinstance(result, Settled) else None

    def _check_open(self) -> None:
        if self._settled is not None:
            raise RuntimeError(f"message {self.id!r} is settled already ({self._settled})")


class Acks(Generic[T]):
    """Acks that go with the next claim. `T`: the future in which the outcome of each is awaited."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, T]] = []
        #: How many were handed over and have no outcome yet. Their handlers have ended, so their slots are free.
        self.count = 0
        #: True while the next claim waits for nothing but a free slot: an ack that is handed over frees one.
        self.is_ready = False

    def add(self, receipt: str, outcome: T) -> None:
        self._waiting.append((receipt, outcome))
        self.count += 1

    def take(self) -> list[tuple[str, T]]:
        """Those that go with the claim that is sent at once. No more are taken until the next one waits."""
        self.is_ready = False
        taken, self._waiting = self._waiting, []
        return taken


def answer_max(visibility: float) -> float:
    """Seconds to wait for an answer, so that several tries fit into one claim."""
    return visibility / ACK_WAIT_SHARE


def wait_with(acks: Sequence[object], wait: float, visibility: float) -> float:
    """How long a claim waits that these acks go with."""
    return min(wait, visibility / (ACK_WAIT_SHARE if acks else WAIT_SHARE))


def outcomes(count: int, results: Sequence[Settled | ItemError]) -> list[SettleOutcome | None]:
    """The outcome of each of so many acks; None where it is to be acked by itself."""
    return [each.outcome if isinstance(each, Settled) else None for each in results] or [None] * count


def check(concurrency: int, visibility: float) -> None:
    if not 1 <= concurrency <= CONCURRENCY_MAX:
        raise ValueError(f"concurrency is {concurrency}; give 1 to {CONCURRENCY_MAX}")
    if visibility < 0.1:
        raise ValueError(f"visibility is {visibility} s; give 100 ms or more")


def pause_after(error: DuetimeError, failures: int) -> float:
    """Seconds until the next claim; an error that no pause cures is raised. Each 503 is waited out."""
    is_refusal = isinstance(error, ApiError) and (error.retryable or is_passing(error.status))
    if not isinstance(error, NoAnswer) and not is_refusal:
        raise error
    asked = error.retry_after if isinstance(error, ApiError) else None
    pause = (asked or 0.0) + random.uniform(0, min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0**failures))
    log.warning("claim failed, next try in %.1f s: %s", pause, error)
    return pause


def reason_of(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        # It has no text: what makes it failed.
        return name


def zipped(
    holds: Sequence[Hold], results: Sequence[Settled | ItemError] | None
) -> Sequence[Settled | ItemError | None]:
    """A result for each; None where there was no answer, or not one for each."""
    return results if results is not None and len(results) == len(holds) else [None] * len(holds)
