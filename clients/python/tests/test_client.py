"""What the client refuses by itself, and that both clients are the same."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

import duetime
from duetime._calls import Calls, Lost, Pause, Reply, Send

PROBLEM = {"content-type": "application/problem+json"}


def public(kind: type) -> dict[str, list[str]]:
    members: dict[str, Callable[..., object]] = dict(inspect.getmembers(kind, inspect.isfunction))
    return {
        name: list(inspect.signature(function).parameters)
        for name, function in members.items()
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (duetime.Duetime, duetime.AsyncDuetime),
        (duetime.Topic, duetime.AsyncTopic),
        (duetime.Delivery, duetime.AsyncDelivery),
    ],
)
def test_the_asynchronous_client_has_the_names_and_arguments_of_the_synchronous_one(one: type, other: type) -> None:
    assert public(one) == public(other)


def test_what_would_be_due_at_another_time_than_meant_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        duetime.NewMessage(due_at=datetime(2030, 1, 1))
    with pytest.raises(TypeError, match="unit"):
        duetime.NewMessage(delay=30)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both"):
        duetime.NewMessage(delay="1s", due_at=datetime.now(timezone.utc))
    early = duetime.NewMessage(delay=timedelta(microseconds=1))
    assert b'"delay":"1ms"' in early.line
    at = datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    assert b'"due_at":1893448800001' in duetime.NewMessage(due_at=at).line


def test_an_id_that_is_made_is_a_uuid_of_version_7_and_another_each_time() -> None:
    first, second = duetime.NewMessage(), duetime.NewMessage()
    assert uuid.UUID(first.id).version == 7 and uuid.UUID(first.id).variant == uuid.RFC_4122
    assert first.id != second.id and first.has_made_id and not duetime.NewMessage(id="a").has_made_id


def test_a_name_of_dots_is_no_part_of_a_path() -> None:
    with duetime.Duetime("http://127.0.0.1:1") as node:
        for name in (".", ".."):
            with pytest.raises(ValueError, match="cancel_many"):
                node.topic("orders").get(name)


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://user:secret@host", "user:secret@host"])
def test_what_is_no_address_is_refused_without_what_it_may_hold(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        duetime.Duetime(url)
    assert "secret" not in str(refused.value)


def test_an_address_that_is_not_set_is_refused_as_one() -> None:
    with pytest.raises(ValueError, match="address of a node"):
        duetime.Duetime(None)  # type: ignore[arg-type]


def test_a_node_that_is_not_there_did_nothing() -> None:
    with duetime.Duetime("http://127.0.0.1:1", retry_for=0) as node:
        with pytest.raises(duetime.NoAnswer) as lost:
            node.topic("orders").enqueue("x")
    assert not lost.value.maybe_done


def test_a_pause_is_not_shorter_than_the_node_asks_for() -> None:
    steps = Calls(None, 10, 30).request("POST", "/v1/x", b"{}")
    assert isinstance(next(steps), Send)
    pause = steps.send(Reply(503, {**PROBLEM, "retry-after": "7"}, b'{"code":"busy","detail":"x"}'))
    assert isinstance(pause, Pause) and 7 <= pause.seconds <= 7.1


@pytest.mark.parametrize("asked", ["99999999999", "9" * 400])
def test_a_pause_is_not_longer_than_a_day_whatever_a_balancer_asks_for(asked: str) -> None:
    steps = Calls(None, 10, 1e6).request("POST", "/v1/x", b"{}")
    next(steps)
    pause = steps.send(Reply(503, {"retry-after": asked}, b""))
    assert isinstance(pause, Pause) and 86_400 <= pause.seconds <= 86_400.1


def test_a_header_that_is_not_utf_8_is_not_a_valid_signature() -> None:
    for id, signature in (("\udcff", "v1,AAAA"), ("a", "v1,\udcff")):
        headers = {"webhook-id": id, "webhook-timestamp": "1", "webhook-signature": signature}
        with pytest.raises(duetime.InvalidSignature, match="secrets"):
            duetime.verify(b"", headers, "whsec_AAAA", now=1.0)


def test_pauses_grow_and_are_drawn_and_end() -> None:
    def pauses() -> list[float]:
        steps, found = Calls(None, 10, 1e6).request("POST", "/v1/x", b"{}"), []
        next(steps)
        for _ in range(9):
            pause = steps.send(Lost("cut", True))
            assert isinstance(pause, Pause)
            found.append(pause.seconds)
            next(steps)
        return found

    one, other = pauses(), pauses()
    assert one != other
    assert all(pause <= min(5.0, 0.1 * 2**count) for count, pause in enumerate(one))
    assert sum(one[5:] + other[5:]) > sum(one[:3] + other[:3])


def test_a_clock_that_is_wrong_is_made_up_for_by_the_date_of_the_node() -> None:
    steps = Calls(None, 10, 30).request("POST", "/v1/x", b"{}")
    first = next(steps)
    late = steps.send(Reply(412, {**PROBLEM, "date": "Tue, 01 Jan 2030 00:00:00 GMT"}, b'{"code":"x","detail":"x"}'))
    assert isinstance(first, Send) and isinstance(late, Send)
    ahead = int(late.headers["Duetime-Not-After"]) - 1_893_456_000_000
    assert 8_000 < ahead <= 11_000
    with pytest.raises(duetime.ApiError):
        steps.send(Reply(412, PROBLEM, b'{"code":"x","detail":"x"}'))
