"""The calls whose requests and answers are recorded, in the order in which they are sent.

`args` is what a program gives to a client; each client's tests translate them. `$NAME.path` is a value of the answer to
the step NAME. Times are milliseconds since the Unix epoch.
"""

from __future__ import annotations

from typing import Any

#: 2033-05-18T03:33:20Z
LATER = 2_000_000_000_000
#: 2020-09-13T12:26:40Z
PAST = 1_600_000_000_000
ODD_ID = "a/b c%2F?é☕"
#: Tokens of the node that answers; secrets of tests.
ALL, READER, SLOW = "all-0123456789abcdef", "reader-0123456789abcdef", "slow-0123456789abcdef"

#: What a client is given as the address of a node, and where it then sends requests; None: it refuses the address.
ADDRESSES = [
    {"name": "as it is", "address": "http://127.0.0.1:3830", "base": "http://127.0.0.1:3830"},
    {"name": "with a slash", "address": "http://127.0.0.1:3830/", "base": "http://127.0.0.1:3830"},
    {"name": "without a scheme", "address": "localhost:3830", "base": "http://localhost:3830"},
    {"name": "with /v1", "address": "http://127.0.0.1:3830/v1", "base": "http://127.0.0.1:3830"},
    {"name": "with /v1 and a slash", "address": "localhost:3830/v1/", "base": "http://localhost:3830"},
    {"name": "below a path", "address": "https://example.com/duetime/", "base": "https://example.com/duetime"},
    {"name": "with /v1 below a path", "address": "https://example.com/duetime/v1",
     "base": "https://example.com/duetime"},
    {"name": "below what only ends so", "address": "http://example.com/av1", "base": "http://example.com/av1"},
    {"name": "of a node that is called v1", "address": "v1/", "base": "http://v1"},
    {"name": "of nothing", "address": "", "base": None},
    {"name": "of another scheme", "address": "ftp://example.com/v1", "base": None},
]

Step = dict[str, Any]


def step(name: str, op: str, args: Step, method: str, path: str, body: Any = None, **more: Any) -> Step:
    request = {"method": method, "path": path, **({} if body is None else {"body": body})}
    return {"name": name, "op": op, "args": args, "request": request, **more}


def enqueue_many(name: str, topic: str, messages: list[Any], body: list[Any]) -> Step:
    args = {"topic": topic, "messages": messages}
    return step(name, "enqueue_many", args, "POST", f"/v1/topics/{topic}/messages", body)


def enqueue(name: str, topic: str, args: dict[str, Any], body: dict[str, Any], **more: Any) -> Step:
    return step(name, "enqueue", {"topic": topic, **args}, "POST", f"/v1/topics/{topic}/messages", body, **more)


def claim(
    name: str, topic: str, max: int, visibility_ms: int | None = None, *, wait_ms: int = 5000, **more: list[str] | str
) -> Step:
    args: dict[str, Any] = {"topic": topic, "max": max, "wait_ms": wait_ms, **more}
    body: dict[str, Any] = {"max": max, "wait": f"{wait_ms}ms", **more}
    if visibility_ms is not None:
        args["visibility_ms"], body["visibility_timeout"] = visibility_ms, f"{visibility_ms}ms"
    return step(name, "claim", args, "POST", f"/v1/topics/{topic}/claim", body)


def settle(name: str, verb: str, topic: str, receipts: list[str], **args: Any) -> Step:
    body: dict[str, Any] = {"receipts": receipts}
    for key, value in args.items():
        if key == "visibility_ms":
            body["visibility_timeout"] = f"{value}ms"
        elif key == "delay_ms":
            body["delay"] = f"{value}ms"
        else:
            body[key] = value
    args = {"topic": topic, "receipts": receipts, **args}
    return step(name, verb, args, "POST", f"/v1/topics/{topic}/{verb}", body)


def cancel(name: str, topic: str, ids: list[str]) -> Step:
    return step(name, "cancel_many", {"topic": topic, "ids": ids}, "POST", f"/v1/topics/{topic}/cancel", {"ids": ids})


def now(id: str, topic: str = "jobs") -> Step:
    args = {"id": id, "payload_text": f"close {id}"}
    return enqueue(f"enqueue {id}", topic, args, {"id": id, "payload": f"close {id}"})


def get(name: str, topic: str, id: str, path: str) -> Step:
    return step(name, "get", {"topic": topic, "id": id}, "GET", f"/v1/topics/{topic}/messages/{path}")


def reschedule(name: str, topic: str, id: str, args: Step, body: Step) -> Step:
    args = {"topic": topic, "id": id, **args}
    return step(name, "reschedule", args, "PATCH", f"/v1/topics/{topic}/messages/{id}", body)


def watermark(name: str, topic: str, until: int | None = None, wait_ms: int = 0) -> Step:
    path, args = f"/v1/topics/{topic}/watermark", {"topic": topic}
    if until is None:
        return step(name, "watermark", args, "GET", path)
    args = {**args, "until": until, "wait_ms": wait_ms}
    return step(name, "watermark", args, "GET", f"{path}?until={until}&wait={wait_ms}ms")


_SETTINGS = {"shards": 4, "visibility_timeout": "30s", "retry": {"max_attempts": 3}}
_ONE = {"shards": 1}
_REMEMBERING = {"shards": 1, "remember": "1h"}
_MARKED = {"shards": 1, "watermark": True}

CALLS = [
    step("create a topic", "create", {"topic": "orders", "settings": _SETTINGS}, "PUT", "/v1/topics/orders", _SETTINGS),
    step("create it again", "create", {"topic": "orders", "settings": {}}, "PUT", "/v1/topics/orders", {}),
    step("create another", "create", {"topic": "jobs", "settings": _ONE}, "PUT", "/v1/topics/jobs", _ONE),
    enqueue(
        "text at a time",
        "orders",
        {"id": "order-1", "payload_text": "närmast \"x\"\n☕", "due_at": LATER, "headers": {"kind": "check"}},
        {"id": "order-1", "payload": "närmast \"x\"\n☕", "due_at": LATER, "headers": {"kind": "check"}},
    ),
    enqueue("JSON", "orders", {"id": "order-2", "payload_json": {"order": 2, "lines": [1, None, "a"]}, "due_at": LATER},
            {"id": "order-2", "payload": {"order": 2, "lines": [1, None, "a"]}, "due_at": LATER}),
    enqueue("bytes that expire at a time", "orders",
            {"id": "order-3", "payload_base64": "AP/+gA==", "due_at": LATER, "expires_at": LATER + 1},
            {"id": "order-3", "payload_base64": "AP/+gA==", "due_at": LATER, "expires_at": LATER + 1}),
    enqueue("nothing, which expires", "orders", {"id": "order-4", "due_at": LATER, "expires_ms": 600_000},
            {"id": "order-4", "due_at": LATER, "expires": "600000ms"}),
    enqueue("one that says how often it is tried", "orders",
            {"id": "order-12", "payload_text": "x", "due_at": LATER, "max_attempts": 2},
            {"id": "order-12", "payload": "x", "due_at": LATER, "max_attempts": 2}),
    enqueue("one that says how long it is hidden", "orders",
            {"id": "order-13", "payload_text": "x", "due_at": LATER, "own_visibility_ms": 300_000},
            {"id": "order-13", "payload": "x", "due_at": LATER, "visibility_timeout": "300000ms"}),
    enqueue("one that comes again", "orders",
            {"id": "order-14", "payload_text": "x", "due_at": LATER, "repeat": {
                "cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin", "times": 24, "missed": "once"}},
            {"id": "order-14", "payload": "x", "due_at": LATER, "repeat": {
                "cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin", "times": 24, "missed": "once"}}),
    enqueue("after a delay", "orders", {"id": "order-5", "payload_text": "x", "delay_ms": 1_800_000},
            {"id": "order-5", "payload": "x", "delay": "1800000ms"}),
    enqueue("a duplicate", "orders", {"id": "order-1", "payload_text": "y", "due_at": LATER},
            {"id": "order-1", "payload": "y", "due_at": LATER}),
    enqueue("a replacement", "orders",
            {"id": "order-2", "payload_text": "y", "due_at": LATER + 1, "on_conflict": "replace"},
            {"id": "order-2", "payload": "y", "due_at": LATER + 1, "on_conflict": "replace"}),
    enqueue("one that is due later, where the earlier one is kept", "orders",
            {"id": "order-2", "payload_text": "z", "due_at": LATER + 2, "on_conflict": "earliest"},
            {"id": "order-2", "payload": "z", "due_at": LATER + 2, "on_conflict": "earliest"}),
    enqueue("one that is due later, where the later one is kept", "orders",
            {"id": "order-2", "payload_text": "z", "due_at": LATER + 3, "on_conflict": "latest"},
            {"id": "order-2", "payload": "z", "due_at": LATER + 3, "on_conflict": "latest"}),
    enqueue("an odd id", "orders", {"id": ODD_ID, "payload_text": "z", "due_at": LATER},
            {"id": ODD_ID, "payload": "z", "due_at": LATER}),
    enqueue("a past time", "orders", {"id": "order-6", "payload_text": "x", "due_at": 1_600_000_000_000},
            {"id": "order-6", "payload": "x", "due_at": 1_600_000_000_000}),
    enqueue_many(
        "many, one of them refused",
        "orders",
        [{"id": "order-7", "payload_text": "x", "due_at": LATER}, {"id": "a\u0001b", "due_at": LATER},
         {"id": "order-1", "payload_json": 7, "delay_ms": 60_000}],
        [{"id": "order-7", "payload": "x", "due_at": LATER}, {"id": "a\u0001b", "due_at": LATER},
         {"id": "order-1", "payload": 7, "delay": "60000ms"}],
    ),
    get("read text", "orders", "order-1", "order-1"),
    get("read bytes", "orders", "order-3", "order-3"),
    get("read how often it is tried", "orders", "order-12", "order-12"),
    get("read how long it is hidden", "orders", "order-13", "order-13"),
    get("read an odd id", "orders", ODD_ID, "a%2Fb%20c%252F%3F%C3%A9%E2%98%95"),
    get("read what is not there", "orders", "nobody", "nobody"),
    step("look at a topic", "info", {"topic": "orders"}, "GET", "/v1/topics/orders"),
    step("list topics", "topics", {}, "GET", "/v1/topics"),
    reschedule("reschedule to a time", "orders", "order-1", {"due_at": LATER + 2}, {"due_at": LATER + 2}),
    reschedule("reschedule by a delay", "orders", "order-1", {"delay_ms": 90_000}, {"delay": "90000ms"}),
    reschedule("reschedule what is not there", "orders", "nobody", {"due_at": LATER}, {"due_at": LATER}),
    cancel("cancel", "orders", ["order-1", "nobody", "..", ODD_ID]),
    now("w-1"),
    claim("claim", "jobs", 1),
    settle("extend", "extend", "jobs", ["$claim.messages.0.receipt"], visibility_ms=60_000),
    settle("extend by the old receipt, as after a lost answer", "extend", "jobs", ["$claim.messages.0.receipt"]),
    settle("ack", "ack", "jobs", ["$extend.results.0.receipt"]),
    settle("ack again", "ack", "jobs", ["$extend.results.0.receipt"]),
    now("w-2"),
    claim("claim to release", "jobs", 5, 45_000, consumer="worker-1"),
    settle("release", "release", "jobs", ["$claim to release.messages.0.receipt"]),
    claim("claim to nack", "jobs", 5),
    settle("nack", "nack", "jobs", ["$claim to nack.messages.0.receipt"], delay_ms=3_600_000, reason="not yet"),
    now("w-3"),
    claim("claim to bury", "jobs", 5),
    reschedule("reschedule what is in flight", "jobs", "w-3", {"due_at": LATER}, {"due_at": LATER}),
    settle("bury", "nack", "jobs", ["$claim to bury.messages.0.receipt"], reason="for good", dead=True),
    get("read a dead letter", "jobs", "w-3", "w-3"),
    reschedule("reschedule a dead letter", "jobs", "w-3", {"due_at": LATER}, {"due_at": LATER}),
    now("w-4"),
    claim("claim to be cancelled", "jobs", 5),
    cancel("cancel what is in flight", "jobs", ["w-4"]),
    settle("ack what was cancelled", "ack", "jobs", ["$claim to be cancelled.messages.0.receipt", "no receipt"]),
    now("w-5"),
    claim("claim to ack with the next claim", "jobs", 1),
    now("w-6"),
    claim("ack and claim", "jobs", 1, ack=["$claim to ack with the next claim.messages.0.receipt"]),
    claim("ack again, in vain and wrongly, and claim nothing", "jobs", 1, wait_ms=0, ack=[
        "$claim to ack with the next claim.messages.0.receipt", "$ack and claim.messages.0.receipt",
        "$claim to be cancelled.messages.0.receipt", "no receipt",
    ]),
    step("delete with messages", "delete", {"topic": "orders"}, "DELETE", "/v1/topics/orders"),
    step("delete all the same", "delete", {"topic": "orders", "force": True}, "DELETE", "/v1/topics/orders?force=true"),
    step("delete again", "delete", {"topic": "orders"}, "DELETE", "/v1/topics/orders"),
    step("create one that remembers", "create", {"topic": "kept", "settings": _REMEMBERING}, "PUT", "/v1/topics/kept",
         _REMEMBERING),
    now("k-1", "kept"),
    claim("claim what will be remembered", "kept", 1),
    settle("ack what will be remembered", "ack", "kept", ["$claim what will be remembered.messages.0.receipt"]),
    cancel("cancel what was delivered, and what comes later", "kept", ["k-1", "k-2"]),
    now("k-1", "kept"),
    now("k-2", "kept"),
    step("create one with a watermark", "create", {"topic": "bills", "settings": _MARKED}, "PUT", "/v1/topics/bills",
         _MARKED),
    now("b-1", "bills"),
    claim("claim what holds a watermark back", "bills", 1),
    watermark("read a watermark", "bills"),
    watermark("wait for a watermark that is there", "bills", PAST, 5000),
]

_SMALL = {"shards": 1, "max_payload": 10, "max_messages": 1}
_HOOKED = {"shards": 1, "sink": {"name": "hook"}}
_UNKNOWN = {"shard": 1}
_FAR = {"id": "a", "due_at": 9_000_000_000_000}

PROBLEMS = [
    step("a small topic", "create", {"topic": "small", "settings": _SMALL}, "PUT", "/v1/topics/small", _SMALL),
    step("a topic with a sink", "create", {"topic": "hooked", "settings": _HOOKED},
         "PUT", "/v1/topics/hooked", _HOOKED),
    enqueue("an unknown topic", "nowhere", {"id": "a"}, {"id": "a"}),
    enqueue("a payload too large", "small", {"id": "a", "payload_text": "0123456789x"},
            {"id": "a", "payload": "0123456789x"}),
    enqueue("a time too far ahead", "small", _FAR, _FAR),
    enqueue("an id of dots", "small", {"id": ".."}, {"id": ".."}),
    step("settings that are none", "create", {"topic": "small", "settings": _UNKNOWN},
         "PUT", "/v1/topics/small", _UNKNOWN),
    enqueue("the last that fits", "small", {"id": "a", "due_at": LATER}, {"id": "a", "due_at": LATER}),
    enqueue("a full topic", "small", {"id": "b", "due_at": LATER}, {"id": "b", "due_at": LATER}),
    watermark("a watermark of a topic that was created without one", "small"),
    step("a claim beside a sink", "claim", {"topic": "hooked", "max": 1, "wait_ms": 0},
         "POST", "/v1/topics/hooked/claim", {"max": 1, "wait": "0ms"}),
    claim("acks and a claim beside a sink", "hooked", 1, wait_ms=0, ack=["no receipt"]),
    enqueue("an unknown token", "small", {"id": "c"}, {"id": "c"}, token="unknown-0123456789abcdef"),
    enqueue("a token of another scope", "small", {"id": "c"}, {"id": "c"}, token=READER),
    enqueue("a request that has an id", "nowhere", {"id": "a"}, {"id": "a"}, request_id="shop-42/a.b:c"),
    step("the first of a slow token", "info", {"topic": "small"}, "GET", "/v1/topics/small", token=SLOW),
    step("the second of a slow token", "info", {"topic": "small"}, "GET", "/v1/topics/small", token=SLOW),
]

#: Topics and their shard counts, and ids whose shard is recorded.
HOMES = [("orders", 1), ("Orders-2", 2), ("t", 7), ("a.b-c_d", 64), ("big", 1000)]
IDS = [ODD_ID, "a", "0123456789abcde", "0123456789abcdef", "0123456789abcdef0", "x" * 31, "y" * 256, "☕☕☕"]
IDS += [f"order-{number}" for number in range(20)]
