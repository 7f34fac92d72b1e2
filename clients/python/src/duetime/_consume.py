"""Consumes a topic with threads. Upstream: `Topic.consume`. Downstream: claim, extend, ack, nack, release."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from threading import Condition, Event, Lock, Thread
from typing import TYPE_CHECKING

from . import _hold, _http, _trace, _wire
from ._calls import one
from ._hold import Acks, Hold, log
from ._types import Claimed, ClaimedMessage, DuetimeError, Duration, ItemError, Settled, SettleOutcome

if TYPE_CHECKING:
    from ._sync import Topic

#: How often a consumer that has no free slot checks for its stop.
_STOP_POLL_S = 0.2


class Delivery(Hold):
    """A message that a handler holds."""

    def __init__(self, loop: _Loop, message: ClaimedMessage, claimed_at: float) -> None:
        super().__init__(message, claimed_at, loop.visibility)
        self._loop = loop
        #: Held while the claim is extended or settled: a receipt ends with each extension.
        self._lock = Lock()

    def ack(self) -> SettleOutcome:
        """Done. `cancelled`: the message was cancelled meanwhile, undo what was done."""
        return self._settle("ack", {})

    def nack(
        self, *, delay: Duration | None = None, reason: str | None = None, dead: bool = False
    ) -> SettleOutcome:
        """Not done: again after `delay` or the topic's backoff, or, with `dead`, a dead letter at once."""
        return self._settle("nack", _http.nack(delay, reason, dead))

    def release(self) -> SettleOutcome:
        """Not begun: due again at once, and the claim costs no attempt."""
        return self._settle("release", {})

    def _settle(
        self, verb: str, more: dict[str, object], retry_for: float | None = None, *, with_claim: bool = False
    ) -> SettleOutcome:
        with self._lock:
            self._check_open()
            if self._is_bound:
                outcome = self._loop.ack_with_claim(self._receipt) if with_claim else None
                self._settled = outcome or self._loop.settle(verb, self._receipt, more, retry_for)
            else:
                self._settled = "ok"
        if self._settled not in ("ok", "already"):
            self._loop.lose(self, self._settled)
        return self._settled


class _Loop:
    def __init__(
        self,
        topic: Topic,
        handler: Callable[[Delivery], object],
        concurrency: int,
        visibility: float,
        on_lost: Callable[[Delivery, SettleOutcome], object] | None,
        consumer: str | None,
    ) -> None:
        _hold.check(concurrency, visibility)
        self.visibility, self._consumer = visibility, consumer
        self._topic, self._handler, self._concurrency, self._on_lost = topic, handler, concurrency, on_lost
        self._held: set[Delivery] = set()
        self._acks: Acks[Future[SettleOutcome | None]] = Acks()
        self._changed = Condition()
        self._ended = Event()

    def settle(self, verb: str, receipt: str, more: dict[str, object], retry_for: float | None) -> SettleOutcome:
        timeout = _hold.answer_max(self.visibility)
        steps = self._topic._calls.settle(self._topic.name, verb, [receipt], more, timeout, retry_for)
        return one(self._topic._run(steps)).outcome

    def ack_with_claim(self, receipt: str) -> SettleOutcome | None:
        """Acks with the next claim, if that is sent at once; None: it is to be acked by itself."""
        outcome: Future[SettleOutcome | None] = Future()
        with self._changed:
            if not self._acks.is_ready:
                return None
            self._acks.add(receipt, outcome)
            self._changed.notify_all()
        return outcome.result()

    def _take_acks(self) -> list[tuple[str, Future[SettleOutcome | None]]]:
        with self._changed:
            return self._acks.take()

    def _acked(
        self, acks: list[tuple[str, Future[SettleOutcome | None]]], results: Sequence[Settled | ItemError]
    ) -> None:
        with self._changed:
            self._acks.count -= len(acks)
        for (_, waiting), outcome in zip(acks, _hold.outcomes(len(acks), results), strict=True):
            waiting.set_result(outcome)

    def lose(self, delivery: Delivery, outcome: SettleOutcome) -> None:
        # The thread of the heartbeat and that of the handler may both see the end.
        with self._changed:
            if delivery._lost is not None:
                return
            delivery._lost = outcome
        log.warning("message %r is not held any more: %s", delivery.id, outcome)
        if self._on_lost is not None:
            try:
                self._on_lost(delivery, outcome)
            except Exception:
                log.exception("on_lost failed for message %r", delivery.id)

    def run(self, wait: float, grace: float, stop: Event) -> None:
        beats = Thread(target=self._beat, name="duetime-beats", daemon=True)
        beats.start()
        try:
            self._claim_until(stop, wait)
        finally:
            self._acked(self._take_acks(), [])
            self._drain(grace)
            self._ended.set()
            beats.join()

    def _claim_until(self, stop: Event, wait: float) -> None:
        failures = 0
        while not stop.is_set():
            with self._changed:
                free = self._concurrency - len(self._held) + self._acks.count
                if free <= 0:
                    self._acks.is_ready = True
                    self._changed.wait(_STOP_POLL_S)
                    continue
            claimed_at = time.monotonic()
            try:
                claimed = self._claim(min(free, _hold.CLAIM_MAX), wait)
            except DuetimeError as error:
                stop.wait(_hold.pause_after(error, failures))
                failures += 1
                continue
            failures = 0
            for message in claimed:
                self._begin(Delivery(self, message, claimed_at), stop)

    def _claim(self, count: int, wait: float) -> Claimed:
        calls, visibility, acks = self._topic._calls, timedelta(seconds=self.visibility), self._take_acks()
        claimed = Claimed()
        try:
            receipts = [receipt for receipt, _ in acks]
            wait = _hold.wait_with(acks, wait, self.visibility)
            timeout = _hold.answer_max(self.visibility) if acks else None
            steps = calls.claim(self._topic.name, count, wait, visibility, receipts, self._consumer, timeout, 0)
            claimed = self._topic._run(steps)
        finally:
            self._acked(acks, claimed.results)
        if claimed.error is not None:
            raise claimed.error
        return claimed

    def _begin(self, delivery: Delivery, stop: Event) -> None:
        if stop.is_set() and delivery._is_bound:
            self._release(delivery)
            return
        with self._changed:
            self._held.add(delivery)
        Thread(target=self._handle, args=[delivery], name=f"duetime-{delivery.id}", daemon=True).start()

    def _handle(self, delivery: Delivery) -> None:
        try:
            if delivery._has_run_out:
                # The answer of its claim came too late: the message may be another's.
                self.lose(delivery, "expired")
            if delivery._lost is not None:
                self._release(delivery)
                return
            try:
                with _trace.of(delivery.message):
                    self._handler(delivery)
            except Exception as error:
                log.exception("handler failed for message %r", delivery.id)
                if self._is_held(delivery):
                    delivery.nack(reason=_hold.reason_of(error))
            else:
                if self._is_held(delivery):
                    delivery._settle("ack", {}, with_claim=True)
        except DuetimeError as error:
            log.warning("message %r could not be settled and will come again: %s", delivery.id, error)
        finally:
            with self._changed:
                self._held.discard(delivery)
                self._changed.notify_all()

    def _is_held(self, delivery: Delivery) -> bool:
        # A handler that saw `is_lost` and gave up has not done its work.
        if delivery._has_run_out:
            self.lose(delivery, "expired")
        return delivery._is_open and not delivery._is_taken_back

    def _beat(self) -> None:
        step = self.visibility / _hold.STEPS
        while not self._ended.wait(step):
            now = time.monotonic()
            with self._changed:
                held = [delivery for delivery in self._held if delivery._is_open]
            # What is being settled is left alone: its receipt ends.
            due = [each for each in held if each._beat_at <= now and each._lock.acquire(blocking=False)]
            try:
                self._extend([each for each in due if each._is_open])
            finally:
                for each in due:
                    each._lock.release()
            for each in held:
                if each._has_run_out and not each._lock.locked():
                    self.lose(each, "expired")

    def _extend(self, due: list[Delivery]) -> None:
        if not due:
            return
        since, results = time.monotonic(), None
        calls, visibility = self._topic._calls, timedelta(seconds=self.visibility)
        receipts = [each._receipt for each in due]
        try:
            timeout = _hold.answer_max(self.visibility)
            results = self._topic._run(calls.extend_once(self._topic.name, receipts, visibility, timeout))
        except DuetimeError as error:
            log.warning("claims could not be extended, next try in %.1f s: %s", self.visibility / _hold.STEPS, error)
        for each, result in zip(due, _hold.zipped(due, results), strict=True):
            if (outcome := each._beaten(result, since)) is not None:
                self.lose(each, outcome)

    def _drain(self, grace: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._held, grace)
            rest = list(self._held)
            for delivery in rest:
                delivery._is_taken_back = True
            self._changed.wait_for(lambda: not self._held, _hold.CANCEL_MAX_S)
        for delivery in rest:
            if delivery._is_open:
                self._release(delivery)

    def _release(self, delivery: Delivery) -> None:
        try:
            delivery._settle("release", {}, _hold.RELEASE_FOR_S)
        except DuetimeError as error:
            log.warning("message %r could not be released; it comes after its visibility: %s", delivery.id, error)
        except RuntimeError:
            # Its handler settled it at this moment.
            pass


def consume(
    topic: Topic,
    handler: Callable[[Delivery], object],
    concurrency: int,
    visibility: timedelta | float,
    wait: timedelta | float,
    grace: timedelta | float,
    stop: Event,
    on_lost: Callable[[Delivery, SettleOutcome], object] | None,
    consumer: str | None,
) -> None:
    """See `Topic.consume`."""
    loop = _Loop(topic, handler, concurrency, _wire.seconds(visibility), on_lost, consumer)
    loop.run(_wire.seconds(wait), _wire.seconds(grace), stop)
