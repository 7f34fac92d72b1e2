"""What the client refuses by itself, and that both clients are the same."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import duetime
from duetime._calls import Calls, Lost, Pause, Reply, Send, one

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


@pytest.mark.parametrize("text", ["order-42", b"order-42"])
def test_one_text_is_not_taken_for_a_list_of_its_letters(text: Any) -> None:
    # Nobody listens there: what is refused here was not sent.
    with duetime.Duetime("http://127.0.0.1:1", retry_for=0) as node:
        topic = node.topic("orders")
        calls: list[Callable[[], object]] = [
            lambda: topic.cancel_many(text),
            lambda: topic.ack(text),
            lambda: topic.nack(text),
            lambda: topic.extend(text),
            lambda: topic.release(text),
            lambda: topic.claim(ack=text),
        ]
        for call in calls:
            with pytest.raises(TypeError, match=r"(ids|receipts|ack) is a list of texts.*write \["):
                call()
        wrong: list[Any] = [["a"], text, [42], {"order": 42}]
        for messages in wrong:
            with pytest.raises(TypeError, match="no NewMessage; write NewMessage"):
                topic.enqueue_many(messages)
            with pytest.raises(TypeError, match="no NewMessage; write NewMessage"):
                list(topic.enqueue_stream(messages))


def test_the_asynchronous_client_takes_no_text_for_a_list_either() -> None:
    async def run() -> None:
        async with duetime.AsyncDuetime("http://127.0.0.1:1", retry_for=0) as node:
            topic = node.topic("orders")
            text: Any = "order-42"
            for call in (topic.cancel_many(text), topic.ack(text), topic.claim(ack=text)):
                with pytest.raises(TypeError, match="is a list of texts"):
                    await call
            with pytest.raises(TypeError, match="no NewMessage; write NewMessage"):
                await topic.enqueue_many(text)

    asyncio.run(run())


def test_the_id_of_a_request_is_the_same_for_all_tries_and_in_the_text_of_its_error() -> None:
    ids = iter(["shop-1", "shop-2"])
    steps = Calls(None, 10, 30, lambda: next(ids)).request("POST", "/v1/x", b"{}")
    first = next(steps)
    assert isinstance(steps.send(Lost("cut", True)), Pause)
    second = next(steps)
    assert isinstance(first, Send) and isinstance(second, Send)
    assert [first.headers["x-request-id"], second.headers["x-request-id"]] == ["shop-1", "shop-1"]
    answer = Reply(409, {**PROBLEM, "x-request-id": "shop-1"}, b'{"code":"x","detail":"no"}')
    with pytest.raises(duetime.ApiError, match=r"^no \(x, request shop-1\)$") as refused:
        steps.send(answer)
    assert refused.value.request_id == "shop-1"
    steps = Calls(None, 10, 0, lambda: next(ids)).request("POST", "/v1/x", b"{}")
    next(steps)
    with pytest.raises(duetime.NoAnswer, match="; request shop-2$") as lost:
        steps.send(Lost("cut", True))
    assert lost.value.request_id == "shop-2"


def test_an_answer_of_another_server_and_an_item_name_the_request_too() -> None:
    steps = Calls(None, 10, 0).request("GET", "/v1/x")
    next(steps)
    with pytest.raises(duetime.ForeignAnswer, match="; request r-1$") as foreign:
        steps.send(Reply(404, {"content-type": "text/html", "x-request-id": "r-1"}, b"no"))
    assert foreign.value.request_id == "r-1"
    many = Calls(None, 10, 0).cancel("orders", [".", "a"])
    next(many)
    body = b'{"results":[{"error":{"code":"busy","detail":"later"}},{"outcome":"unknown"}]}'
    with pytest.raises(StopIteration) as ended:
        many.send(Reply(200, {"content-type": "application/json", "x-request-id": "r-2"}, body))
    item = ended.value.value[0]
    assert item.request_id == "r-2"
    with pytest.raises(duetime.ApiError, match="request r-2"):
        one([item])


@pytest.mark.parametrize("id", ["", "shop 42", "a\nb", "é", "x" * 65, None])
def test_an_id_that_no_node_takes_is_not_sent(id: str | None) -> None:
    sent = next(Calls(None, 10, 30, lambda: id).request("GET", "/v1/x"))
    assert isinstance(sent, Send) and "x-request-id" not in sent.headers


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


def test_no_secret_at_all_is_a_fault_of_the_set_up_whatever_the_webhook_is() -> None:
    with pytest.raises(ValueError, match="no secret is given"):
        duetime.verify(b"", {}, [])


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
