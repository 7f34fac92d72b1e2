"""What both clients have in common about httpx and arguments."""

from __future__ import annotations

import re
import time

import httpx

from . import _wire
from ._calls import Lost, Reply, Send
from ._types import Duration

#: Idle connections kept per client.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=256)
#: Longest wait for a connection.
CONNECT_MAX_S = 5.0

seconds = _wire.seconds


def base(url: str) -> str:
    """The address of a node without its last slash and /v1. What is none is a ValueError."""
    # A variable of the environment that is not set is None, whatever the type says.
    text = url or ""
    # The paths of the API begin with /v1, so many give it.
    text = (text if "://" in text else f"http://{text}").rstrip("/")
    text = re.sub(r"(?<=[^:/])/+v1$", "", text)
    parsed = httpx.URL(text)
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise ValueError("this is not the address of a node; write it like 'http://127.0.0.1:3830', and give token=")
    return text


def build(http: httpx.Client | httpx.AsyncClient, base: str, step: Send) -> httpx.Request:
    timeout = httpx.Timeout(step.timeout, connect=min(step.timeout, CONNECT_MAX_S))
    return http.build_request(
        step.method, base + step.path, headers=step.headers, content=step.content, timeout=timeout
    )


class Body:
    """The body of an answer while it comes: the time of httpx is for each piece, that of a client for the whole."""

    def __init__(self, step: Send, request: httpx.Request, started: float) -> None:
        self._request, self._end, self._pieces = request, started + step.timeout, list[bytes]()
        self._limit = step.timeout

    def begin(self) -> None:
        """The status and headers are there. What is left of the time is what the next piece has."""
        left = max(self._end - time.monotonic(), 0.001)
        limits = self._request.extensions.get("timeout")
        if isinstance(limits, dict) and limits.get("read") is not None:
            limits["read"] = min(limits["read"], left)

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        if time.monotonic() > self._end:
            raise httpx.ReadTimeout(f"not complete within {self._limit:g} s")

    def reply(self, response: httpx.Response) -> Reply:
        return Reply(response.status_code, response.headers, b"".join(self._pieces))


#: What ends a try without an answer. A body that cannot be unpacked was damaged on the way.
LOST = (httpx.TransportError, httpx.DecodingError)


def lost(error: httpx.TransportError | httpx.DecodingError) -> Lost:
    maybe_done = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    return Lost(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, maybe_done)


def nack(delay: Duration | None, reason: str | None, dead: bool) -> dict[str, object]:
    given: dict[str, object] = {} if delay is None else {"delay": _wire.duration(delay)}
    if reason is not None:
        given["reason"] = _wire.unicode(reason[:REASON_CHARS_MAX])
    return {**given, "dead": True} if dead else given


def extend(visibility: Duration | None) -> dict[str, object]:
    return {} if visibility is None else {"visibility_timeout": _wire.duration(visibility)}


#: Longest reason of a nack.
REASON_CHARS_MAX = 400
