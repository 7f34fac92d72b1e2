"""How values are written for the node and read from it."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)
#: The id of a request, as a node takes it.
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:/+=-]{1,64}")


def dumps(value: object) -> bytes:
    """JSON in UTF-8 on one line. NaN and infinities, which JSON has not, are a ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def unicode(text: str) -> str:
    """The text with U+FFFD instead of each half of a surrogate pair, which has no UTF-8; two halves are a character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def loads(data: bytes) -> Any:
    return json.loads(data)


def make_id() -> str:
    """A UUID of version 7."""
    head = (time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10)
    number = int.from_bytes(head, "big") & ~(0xF << 76) & ~(3 << 62) | 7 << 76 | 2 << 62
    text = f"{number:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def request_id(given: str | None) -> str | None:
    """The id of a request if a node takes it; another one, such as a stranger sent, is none."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else None


def part(text: str) -> str:
    """One part of a path, percent-encoded once. Proxies take one of dots for a step in the path: a ValueError."""
    if text in (".", ".."):
        raise ValueError(f"{text!r} cannot be a part of a path; cancel a message of that id with cancel_many")
    return quote(text, safe="")


def duration(value: timedelta | str) -> str:
    """A duration as the node reads it; parts of a millisecond are rounded up."""
    if isinstance(value, timedelta):
        return f"{-(-value // _MS)}ms"
    if isinstance(value, str):
        return value
    raise TypeError(f"a duration is a timedelta or a string with a unit such as '30m', not {value!r}")


def seconds(value: timedelta | float) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def moment(value: datetime) -> int:
    """Milliseconds since the Unix epoch, rounded up. A datetime without a time zone is a ValueError."""
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone; write datetime(…, tzinfo=timezone.utc)")
    return -(-(value - _EPOCH) // _MS)


def time_of(millis: int) -> datetime:
    return _EPOCH + millis * _MS


def due(delay: timedelta | str | None, due_at: datetime | None) -> dict[str, object]:
    """The fields `delay` and `due_at`; both are a ValueError."""
    if delay is not None and due_at is not None:
        raise ValueError("delay and due_at are both given; give one of them")
    if delay is not None:
        return {"delay": duration(delay)}
    return {} if due_at is None else {"due_at": moment(due_at)}


def expiry(expires: timedelta | str | None, expires_at: datetime | None) -> dict[str, object]:
    """The fields `expires` and `expires_at`; both are a ValueError."""
    if expires is not None and expires_at is not None:
        raise ValueError("expires and expires_at are both given; give one of them")
    if expires is not None:
        return {"expires": duration(expires)}
    return {} if expires_at is None else {"expires_at": moment(expires_at)}


def payload(value: object) -> dict[str, object]:
    """The field that carries a payload: bytes as base64, text as itself, any other value as JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return {"payload_base64": base64.b64encode(data).decode()} if data else {}
    return {"payload": value}


def payload_of(fields: Mapping[str, Any]) -> bytes:
    if (text := fields.get("payload")) is not None:
        return str(text).encode()
    return base64.b64decode(fields.get("payload_base64") or "")
