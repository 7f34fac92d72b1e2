"""The golden vectors: each request is the recorded one, and each recorded answer is read as recorded."""

from __future__ import annotations

import base64
import dataclasses
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import duetime
from duetime import _types, _wire

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


def vectors(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


def named(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", [pytest.param(each, id=each["name"]) for each in vectors(name)])


def when(args: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "delay_ms" in args:
        found["delay"] = timedelta(milliseconds=args["delay_ms"])
    if "due_at" in args:
        found["due_at"] = _wire.time_of(args["due_at"])
    return found


def expiry(args: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "expires_ms" in args:
        found["expires"] = timedelta(milliseconds=args["expires_ms"])
    if "expires_at" in args:
        found["expires_at"] = _wire.time_of(args["expires_at"])
    return found


def payload(args: dict[str, Any]) -> object:
    if "payload_base64" in args:
        return base64.b64decode(args["payload_base64"])
    return args.get("payload_text", args.get("payload_json", b""))


KEPT = ("id", "headers", "on_conflict", "max_attempts")


def options(args: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: args[name] for name in KEPT if name in args}
    if "own_visibility_ms" in args:
        kept["visibility_timeout"] = timedelta(milliseconds=args["own_visibility_ms"])
    if "repeat" in args:
        kept["repeat"] = duetime.Repeat(**args["repeat"])
    return {**kept, **when(args), **expiry(args)}


def ask(node: duetime.Duetime, op: str, args: dict[str, Any]) -> object:
    topic = node.topic(args.get("topic", ""))
    match op:
        case "topics":
            return node.topics()
        case "create":
            return topic.create(**args["settings"])
        case "info":
            return topic.info()
        case "watermark":
            until = _wire.time_of(args["until"]) if "until" in args else None
            return topic.watermark(until, wait=timedelta(milliseconds=args.get("wait_ms", 0)))
        case "delete":
            return topic.delete(force=args.get("force", False))
        case "enqueue":
            return topic.enqueue(payload(args), **options(args))
        case "enqueue_many":
            return topic.enqueue_many([duetime.NewMessage(payload(each), **options(each)) for each in args["messages"]])
        case "get":
            return topic.get(args["id"])
        case "cancel_many":
            return topic.cancel_many(args["ids"])
        case "reschedule":
            return topic.reschedule(args["id"], **when(args))
        case "claim":
            visibility = f"{args['visibility_ms']}ms" if "visibility_ms" in args else None
            wait, ack = timedelta(milliseconds=args["wait_ms"]), args.get("ack", ())
            consumer = args.get("consumer")
            claimed = topic.claim(args["max"], wait=wait, visibility=visibility, ack=ack, consumer=consumer)
            fields = {"messages": list(claimed), "results": claimed.results, "error": claimed.error}
            return {name: each for name, each in fields.items() if each is not None} if ack else claimed
        case "extend":
            visibility = f"{args['visibility_ms']}ms" if "visibility_ms" in args else None
            return topic.extend(args["receipts"], visibility)
        case "nack":
            more = {name: args[name] for name in ("reason", "dead") if name in args}
            return topic.nack(args["receipts"], **when(args), **more)
    verb: Any = getattr(topic, op)
    return verb(args["receipts"])


def as_wire(value: Any) -> Any:
    """A result in the names and types of the API."""
    if isinstance(value, list):
        return [as_wire(each) for each in value]
    if isinstance(value, dict):
        return {name: as_wire(each) for name, each in value.items()}
    if isinstance(value, duetime.ApiError):
        fields = {name: getattr(value, name) for name in ("status", "code", "detail", "field")}
        return {name: each for name, each in fields.items() if each is not None}
    if isinstance(value, duetime.ItemError):
        # Whether it may be sent again is in the answer, and not in the recorded result.
        fields = {name: each for name, each in dataclasses.asdict(value).items() if name != "retryable"}
        return {"error": {name: each for name, each in fields.items() if each is not None}}
    if dataclasses.is_dataclass(value):
        found = {field.name: as_wire(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, (duetime.Message, duetime.ClaimedMessage)):
            found["payload_base64"] = found.pop("payload")
        kept = {name: each for name, each in found.items() if each is not None and each is not False and name != "raw"}
        return kept
    if isinstance(value, datetime):
        return _wire.moment(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@named("calls")
def test_a_call_sends_and_reads_what_was_recorded(vector: dict[str, Any]) -> None:
    replay(vector)


@named("problems")
def test_a_problem_has_the_fields_that_the_node_gave(vector: dict[str, Any]) -> None:
    replay(vector)


def replay(vector: dict[str, Any]) -> None:
    answer, sent = vector["answer"], []

    def take(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(answer["status"], headers=answer["headers"], json=answer["body"])

    http = httpx.Client(transport=httpx.MockTransport(take))
    given = vector.get("request_id")
    node = duetime.Duetime("http://node", token="secret", retry_for=0, http=http, request_id=lambda: given)
    found: object
    try:
        found = as_wire(ask(node, vector["op"], vector["args"]))
    except duetime.ApiError as error:
        fields = ("status", "code", "detail", "field", "retry_after", "request_id")
        found = {"error": {name: getattr(error, name) for name in fields if getattr(error, name) is not None}}
    assert found == vector["result"]
    (request,) = sent
    wanted = vector["request"]
    assert (request.method, request.url.raw_path.decode()) == (wanted["method"], wanted["path"])
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers.get("x-request-id") == given
    assert ("duetime-not-after" in request.headers) == (request.method != "GET")
    if "body" in wanted:
        assert request.headers["content-type"] == "application/json"
        assert json.loads(request.content) == wanted["body"]
    else:
        assert request.content == b""


@named("addresses")
def test_the_paths_of_the_api_are_below_what_is_given_as_the_address(vector: dict[str, Any]) -> None:
    sent: list[str] = []

    def take(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        return httpx.Response(200, json={"topics": []})

    http = httpx.Client(transport=httpx.MockTransport(take))
    if vector["base"] is None:
        with pytest.raises(ValueError, match="address of a node"):
            duetime.Duetime(vector["address"], http=http)
        return
    duetime.Duetime(vector["address"], http=http).topics()
    assert sent == [f"{vector['base']}/v1/topics"]


@named("signatures")
def test_a_webhook_is_verified_as_recorded(vector: dict[str, Any]) -> None:
    body, secrets = base64.b64decode(vector["body_base64"]), vector["secrets"]
    headers = {name.title(): value for name, value in vector["headers"].items()}
    if vector["is_valid"]:
        assert duetime.verify(body, headers, secrets, now=vector["now"]) == headers["Webhook-Id"]
        return
    with pytest.raises(duetime.InvalidSignature):
        duetime.verify(body, headers, secrets, now=vector["now"])


def test_an_id_is_at_home_where_the_node_has_it() -> None:
    for topic in vectors("homes"):
        for id, shard in topic["homes"].items():
            assert duetime.shard_of(id, topic["seed"], topic["shards"]) == shard


@pytest.mark.parametrize(
    ("kind", "schema", "ours", "theirs"),
    [
        (duetime.Enqueued, "Placed", {"repeated"}, set()),
        (duetime.Cancelled, "OutcomeView", {"repeated"}, {"due_at", "smeared_ms", "late_by_ms", "receipt"}),
        (duetime.Rescheduled, "OutcomeView", set(), {"receipt", "became"}),
        (duetime.Settled, "OutcomeView", set(), {"due_at", "smeared_ms", "late_by_ms", "became"}),
        (duetime.Became, "Became", set(), set()),
        (duetime.Message, "MessageView", set(), {"payload_base64", "previous"}),
        (duetime.ClaimedMessage, "ClaimedView", set(), {"payload_base64"}),
        (duetime.Death, "DeathView", set(), set()),
        (duetime.ItemError, "ItemProblem", {"id", "request_id"}, {"line"}),
        (duetime.TopicInfo, "TopicView", {"raw"}, set()),
        (duetime.HeldBy, "HeldView", set(), set()),
        (duetime.Watermark, "WatermarkView", set(), set()),
    ],
)
def test_a_type_has_the_fields_of_the_document(kind: type, schema: str, ours: set[str], theirs: set[str]) -> None:
    fields = dataclasses.fields(kind)
    shape = vectors("shapes")["schemas"][schema]
    assert {field.name for field in fields} - ours == set(shape["fields"]) - theirs
    needed = {field.name for field in fields if field.default is dataclasses.MISSING} - ours - {"payload"}
    # An OutcomeView is the answer to several calls: of some an id is always there.
    assert needed - {"id"} == set(shape["required"]) - theirs - {"id"}


def test_what_is_sent_again_is_what_the_document_has_as_passing() -> None:
    assert set(vectors("shapes")["retryable"]) == _types.RETRYABLE
