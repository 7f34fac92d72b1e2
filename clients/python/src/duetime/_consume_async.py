"""Consumes a topic with tasks. Upstream: `AsyncTopic.consume`. Downstream: claim, extend, ack, nack, release."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from . import _hold, _http, _trace, _wire
from ._calls import one
from ._hold import Acks, Hold, log
from ._types import Claimed, ClaimedMessage, DuetimeError, Duration, ItemError, Settled, SettleOutcome

if TYPE_CHECKING:
    from ._async import AsyncTopic


class AsyncDelivery(Hold):
    """A message that a handler holds."""

    def __init__(self, loop: _Loop, message: ClaimedMessage, claimed_at: float) -> None:
        super().__init__(message, claimed_at, loop.visibility)
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        #: Held while the claim is extended or settled: a receipt ends with each extension.
        self._lock = asyncio.Lock()
        self._is_settling = False

    async def ack(self) -> SettleOutcome:
        """Done. `cancelled`: the message was cancelled meanwhile, undo what was done."""
        return await self._settle("ack", {})

    async def nack(
        self, *, delay: Duration | None = None, reason: str | None = None, dead: bool = False
    ) -> SettleOutcome:
        """Not done: again after `delay` or the topic's backoff, or, with `dead`, a dead letter at once."""
        return await self._settle("nack", _http.nack(delay, reason, dead))

    async def release(self) -> SettleOutcome:
        """Not begun: due again at once, and the claim costs no attempt."""
        return await self._settle("release", {})

    async def _settle(
        self, verb: str, more: dict[str, object], retry_for: float | None = None, *, with_claim: bool = False
    ) -> SettleOutcome:
        self._is_settling = True
        try:
            async with self._lock:
                self._check_open()
                if self._is_bound:
                    outcome = await self._loop.ack_with_claim(self._receipt) if with_claim else None
                    self._settled = outcome or await self._loop.settle(verb, self._receipt, more, retry_for)
                else:
                    self._settled = "ok"
        finally:
            self._is_settling = False
        if self._settled not in ("ok", "already"):
            self._loop.lose(self, self._settled)
        return self._settled


class _Loop:
    def __init__(
        self,
        topic: AsyncTopic,
        handler: Callable[[AsyncDelivery], Awaitable[object]],
        concurrency: int,
        visibility: float,
        on_lost: Callable[[AsyncDelivery, SettleOutcome], object] | None,
        consumer: str | None,
    ) -> None:
        _hold.check(concurrency, visibility)
        self.visibility, self._consumer = visibility, consumer
        self._topic, self._handler, self._concurrency, self._on_lost = topic, handler, concurrency, on_lost
        self._held: set[AsyncDelivery] = set()
        self._acks: Acks[asyncio.Future[SettleOutcome | None]] = Acks()
        self._freed = asyncio.Event()

    async def settle(self, verb: str, receipt: str, more: dict[str, object], retry_for: float | None) -> SettleOutcome:
        timeout = _hold.answer_max(self.visibility)
        steps = self._topic._calls.settle(self._topic.name, verb, [receipt], more, timeout, retry_for)
        return one(await self._topic._run(steps)).outcome

    async def ack_with_claim(self, receipt: str) -> SettleOutcome | None:
        """Acks with the next claim, if that is sent at once; None: it is to be acked by itself."""
        if not self._acks.is_ready:
            return None
        outcome: asyncio.Future[SettleOutcome | None] = asyncio.get_running_loop().create_future()
        self._acks.add(receipt, outcome)
        self._freed.set()
        return await outcome

    def _acked(
        self, acks: list[tuple[str, asyncio.Future[SettleOutcome | None]]], results: Sequence[Settled | ItemError]
    ) -> None:
        self._acks.count -= len(acks)
        for (_, waiting), outcome in zip(acks, _hold.outcomes(len(acks), results), strict=True):
            if not waiting.done():
                waiting.set_result(outcome)

    def lose(self, delivery: AsyncDelivery, outcome: SettleOutcome) -> None:
        """The claim is over: the handler is cancelled, unless it has settled the message itself."""
        if delivery._lost is not None:
            return
        delivery._lost = outcome
        log.warning("message %r is not held any more: %s", delivery.id, outcome)
        if delivery._settled is None and delivery._task is not None:
            delivery._task.cancel()
        if self._on_lost is not None:
            try:
                self._on_lost(delivery, outcome)
            except Exception:
                log.exception("on_lost failed for message %r", delivery.id)

    async def run(self, wait: float, grace: float, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        beats = asyncio.create_task(self._beat())
        try:
            await self._claim_until(stop, stopping, wait)
        except asyncio.CancelledError:
            grace = 0
            raise
        finally:
            stopping.cancel()
            self._acked(self._acks.take(), [])
            await self._drain(grace)
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)

    async def _claim_until(self, stop: asyncio.Event, stopping: asyncio.Task[bool], wait: float) -> None:
        failures = 0
        while not stop.is_set():
            free = self._concurrency - len(self._held) + self._acks.count
            if free <= 0:
                self._acks.is_ready = True
                self._freed.clear()
                freed = asyncio.create_task(self._freed.wait())
                await asyncio.wait([freed, stopping], return_when=asyncio.FIRST_COMPLETED)
                freed.cancel()
                continue
            claimed_at = time.monotonic()
            try:
                claimed = await self._claim(min(free, _hold.CLAIM_MAX), wait, claimed_at)
            except DuetimeError as error:
                await asyncio.wait([stopping], timeout=_hold.pause_after(error, failures))
                failures += 1
                continue
            failures = 0
            for message in claimed:
                await self._begin(AsyncDelivery(self, message, claimed_at), stop)

    async def _claim(self, count: int, wait: float, claimed_at: float) -> list[ClaimedMessage]:
        claiming = asyncio.create_task(self._claim_and_ack(self._acks.take(), count, wait))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # What is sent to a claim that hangs up is hidden until its visibility ends, so its answer is waited for.
            for claimed in await asyncio.gather(claiming, return_exceptions=True):
                if isinstance(claimed, list):
                    await asyncio.gather(*[self._release(AsyncDelivery(self, each, claimed_at)) for each in claimed])
            raise

    async def _claim_and_ack(
        self, acks: list[tuple[str, asyncio.Future[SettleOutcome | None]]], count: int, wait: float
    ) -> Claimed:
        calls, visibility, claimed = self._topic._calls, timedelta(seconds=self.visibility), Claimed()
        try:
            receipts = [receipt for receipt, _ in acks]
            wait = _hold.wait_with(acks, wait, self.visibility)
            timeout = _hold.answer_max(self.visibility) if acks else None
            steps = calls.claim(self._topic.name, count, wait, visibility, receipts, self._consumer, timeout, 0)
            claimed = await self._topic._run(steps)
        finally:
            self._acked(acks, claimed.results)
        if claimed.error is not None:
            raise claimed.error
        return claimed

    async def _begin(self, delivery: AsyncDelivery, stop: asyncio.Event) -> None:
        if stop.is_set() and delivery._is_bound:
            await self._release(delivery)
            return
        self._held.add(delivery)
        delivery._task = asyncio.create_task(self._handle(delivery))
        # Also where it is cancelled before it has begun.
        delivery._task.add_done_callback(lambda _: self._free(delivery))

    def _free(self, delivery: AsyncDelivery) -> None:
        self._held.discard(delivery)
        self._freed.set()

    async def _handle(self, delivery: AsyncDelivery) -> None:
        try:
            if delivery._has_run_out:
                # The answer of its claim came too late: the message may be another's.
                await self._release(delivery)
                self.lose(delivery, "expired")
                return
            try:
                with _trace.of(delivery.message):
                    await self._handler(delivery)
            except asyncio.CancelledError as error:
                if delivery._lost is None and not delivery._is_taken_back:
                    await delivery.nack(reason=_hold.reason_of(error))
            except Exception as error:
                log.exception("handler failed for message %r", delivery.id)
                if self._is_held(delivery) and not delivery._is_taken_back:
                    await delivery.nack(reason=_hold.reason_of(error))
            else:
                if self._is_held(delivery):
                    await delivery._settle("ack", {}, with_claim=True)
        except DuetimeError as error:
            log.warning("message %r could not be settled and will come again: %s", delivery.id, error)

    def _is_held(self, delivery: AsyncDelivery) -> bool:
        # A handler that saw `is_lost` and gave up has not done its work.
        if delivery._has_run_out:
            self.lose(delivery, "expired")
        return delivery._is_open

    async def _beat(self) -> None:
        step = self.visibility / _hold.STEPS
        extending: asyncio.Task[None] | None = None
        while True:
            await asyncio.sleep(step)
            now = time.monotonic()
            for each in list(self._held):
                if each._has_run_out and not each._is_settling:
                    self.lose(each, "expired")
            if extending is None or extending.done():
                # What is being settled is left alone: its receipt ends.
                is_due = [each for each in self._held if each._is_open and each._beat_at <= now]
                due = [each for each in is_due if not each._lock.locked()]
                for each in due:
                    # No one holds or awaits the lock, so this does not wait.
                    await each._lock.acquire()
                extending = asyncio.create_task(self._extend(due)) if due else None

    async def _extend(self, due: list[AsyncDelivery]) -> None:
        since, results = time.monotonic(), None
        calls, visibility = self._topic._calls, timedelta(seconds=self.visibility)
        try:
            receipts = [each._receipt for each in due]
            timeout = _hold.answer_max(self.visibility)
            results = await self._topic._run(calls.extend_once(self._topic.name, receipts, visibility, timeout))
        except DuetimeError as error:
            log.warning("claims could not be extended, next try in %.1f s: %s", self.visibility / _hold.STEPS, error)
        finally:
            for each in due:
                each._lock.release()
        for each, result in zip(due, _hold.zipped(due, results), strict=True):
            if (outcome := each._beaten(result, since)) is not None:
                self.lose(each, outcome)

    async def _drain(self, grace: float) -> None:
        tasks = [each._task for each in self._held if each._task is not None]
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=grace)
        rest = list(self._held)
        for each in rest:
            each._is_taken_back = True
            if each._task is not None and not each._is_settling:
                each._task.cancel()
        if rest:
            await asyncio.wait(tasks, timeout=_hold.CANCEL_MAX_S)
        await asyncio.gather(*[self._release(each) for each in rest if each._is_open])

    async def _release(self, delivery: AsyncDelivery) -> None:
        try:
            await delivery._settle("release", {}, _hold.RELEASE_FOR_S)
        except DuetimeError as error:
            log.warning("message %r could not be released; it comes after its visibility: %s", delivery.id, error)
        except RuntimeError:
            # Its handler settled it at this moment.
            pass


async def consume(
    topic: AsyncTopic,
    handler: Callable[[AsyncDelivery], Awaitable[object]],
    concurrency: int,
    visibility: timedelta | float,
    wait: timedelta | float,
    grace: timedelta | float,
    stop: asyncio.Event,
    on_lost: Callable[[AsyncDelivery, SettleOutcome], object] | None,
    consumer: str | None,
) -> None:
    """See `AsyncTopic.consume`."""
    loop = _Loop(topic, handler, concurrency, _wire.seconds(visibility), on_lost, consumer)
    await loop.run(_wire.seconds(wait), _wire.seconds(grace), stop)
