"""The node and the proxy that `clients/rig/with_node.py` started, and consumers of both kinds under one name."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import pytest

import duetime

#: What is awaited is seen within this time, or the test fails.
SEEN_MAX_S = 30.0

Pause: TypeAlias = Callable[[float], Awaitable[None]]
Handler: TypeAlias = Callable[[Any, Pause], Coroutine[Any, Any, object]]

_numbers = itertools.count()


def until(seen: Callable[[], object], what: str) -> None:
    """Waits until `seen` is true."""
    end = time.monotonic() + SEEN_MAX_S
    while not seen():
        assert time.monotonic() < end, f"not seen within {SEEN_MAX_S} s: {what}"
        time.sleep(0.02)


class Rig:
    """A client behind the proxy, a topic of its own for each test, and the faults of the proxy."""

    def __init__(self, node: duetime.Duetime, direct: duetime.Duetime) -> None:
        self.node, self.direct = node, direct
        self.name = f"t-{os.getpid()}-{next(_numbers)}"
        self.topic = node.topic(self.name)
        #: The same topic, past the proxy.
        self.beside = direct.topic(self.name)

    def create(self, **settings: Any) -> duetime.Topic:
        self.beside.create(**{"shards": 2, "retry": {"initial": "100ms", "jitter": 0}, **settings})
        return self.topic

    def fault(self, do: str, path: str, method: str = "POST", times: int = 1, **more: Any) -> None:
        """Does something to the next requests about this topic whose path has `path` in it."""
        whole = f"/v1/topics/{self.name}{path}"
        self._control("/faults", [{"do": do, "path": whole, "method": method, "times": times, **more}])

    def node_does(self, what: str) -> None:
        self._control("/node", {"do": what})

    def requests(self, path: str) -> list[dict[str, Any]]:
        """The requests about this topic that the proxy saw."""
        query = urllib.parse.urlencode({"path": f"/v1/topics/{self.name}{path}"})
        found: list[dict[str, Any]] = self._control(f"/requests?{query}")
        return found

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(request["body"]) for request in self.requests(path)]

    def _control(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(os.environ["DUETIME_CONTROL"] + path, data, timeout=60) as answer:
            return json.loads(answer.read())


def rig(**options: Any) -> Rig:
    direct = duetime.Duetime(os.environ["DUETIME_DIRECT"])
    return Rig(duetime.Duetime(os.environ["DUETIME_URL"], **options), direct)


class _Awaited:
    """A synchronous delivery whose methods are awaited, so that one handler serves both consumers."""

    def __init__(self, delivery: duetime.Delivery) -> None:
        self._delivery = delivery

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)

    async def ack(self) -> str:
        return self._delivery.ack()

    async def nack(self, **more: Any) -> str:
        return self._delivery.nack(**more)


class Consumer:
    """A consumer in a thread of its own. `with` stops it, waits for its end and raises what it raised."""

    def __init__(self, kind: str, rig: Rig, handler: Handler, **options: Any) -> None:
        self._options = {"wait": 1.0, **options}
        self._error: BaseException | None = None
        self.lost: list[str] = []
        self._options["on_lost"] = lambda delivery, outcome: self.lost.append(outcome)
        run = self._run_sync if kind == "sync" else self._run_async
        self._stop: Callable[[], object] = lambda: None
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._guarded, args=[run, rig, handler], daemon=True)

    def __enter__(self) -> Consumer:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.join()

    def stop(self) -> None:
        self._stop()

    def join(self) -> None:
        self._thread.join(SEEN_MAX_S)
        assert not self._thread.is_alive(), "the consumer does not end"
        if self._error is not None:
            raise self._error

    def _guarded(self, run: Callable[[Rig, Handler], None], rig: Rig, handler: Handler) -> None:
        try:
            run(rig, handler)
        except BaseException as error:
            self._error = error

    def _run_sync(self, rig: Rig, handler: Handler) -> None:
        stop = threading.Event()
        self._stop = stop.set

        async def pause(seconds: float) -> None:
            time.sleep(seconds)

        def handle(delivery: duetime.Delivery) -> None:
            # Nothing in it is suspended.
            with pytest.raises(StopIteration):
                handler(_Awaited(delivery), pause).send(None)

        self._is_ready.set()
        rig.topic.consume(handle, stop=stop, **self._options)

    def _run_async(self, rig: Rig, handler: Handler) -> None:
        async def consume() -> None:
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            self._stop = lambda: None if loop.is_closed() else loop.call_soon_threadsafe(stop.set)
            self._is_ready.set()
            async with duetime.AsyncDuetime(os.environ["DUETIME_URL"]) as node:
                topic = node.topic(rig.name)
                await topic.consume(lambda each: handler(each, asyncio.sleep), stop=stop, **self._options)

        asyncio.run(consume())
