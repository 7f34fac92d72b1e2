#!/usr/bin/env python3
"""Writes the golden vectors from a real node, or checks a node against those that are there.

    DUETIME_BIN=target/debug/duetime clients/vectors/make.py write
    DUETIME_BIN=target/debug/duetime clients/vectors/make.py check

Each client's tests replay them: its request must be the recorded one, and what it makes of the recorded answer must be
`result`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "rig"), str(HERE.parent / "python" / "src" / "duetime")]

from _shards import shard_of  # noqa: E402
from node import Node  # noqa: E402
from steps import ADDRESSES, ALL, CALLS, HOMES, IDS, LATER, PROBLEMS, READER, SLOW  # noqa: E402

#: Values of these fields differ from run to run; their types do not.
VOLATILE = {
    "at", "created_at", "deadline", "delivery_id", "detail", "due_at", "late_by_ms", "oldest_due_at", "receipt",
    "retry-after", "retry_after", "shard", "until", "version", "visible_at", "watermark",
}
#: Headers that a client reads.
HEADERS = ("content-type", "retry-after")
#: Another one, recorded where the client was given the id: each request has another.
REQUEST_ID = "x-request-id"
SECRETS = ["whsec_" + base64.b64encode(bytes([seed]) * 32).decode() for seed in (7, 8, 9)]
#: Which schemas of the document the clients have types for. Of a topic they read some fields by name.
SHAPES = [
    "Became", "Claim", "ClaimedView", "ClaimedViews", "DeathView", "Extend", "HeldView", "ItemError", "ItemProblem",
    "Message", "MessageIds", "MessageView", "Nack", "OutcomeView", "Placed", "Problem", "ReceiptList", "Reschedule",
    "WatermarkView",
]
TOPIC_FIELDS = [
    "name", "shard_count", "version", "created_at", "scheduled", "due", "in_flight", "dead", "oldest_due_at",
]
#: What of a refusal about one message a client makes no part of the outcome.
PROBLEM_FIELDS = {"type", "title", "status", "code", "detail", "retryable"}
RETRYABLE = ["busy", "clock_skew", "draining", "rate_limited", "routing_changing", "store_unavailable", "timeout"]

CONFIG = """
[[auth.tokens]]
name = "all"
secret = "{all}"
scopes = ["view", "produce", "consume", "admin"]
[[auth.tokens]]
name = "reader"
secret = "{reader}"
scopes = ["view"]
[[auth.tokens]]
name = "slow"
secret = "{slow}"
scopes = ["view"]
requests_per_second = 0.2
[sinks.hook]
type = "http"
url = "http://127.0.0.1:{port}/hook"
allow = ["127.0.0.1"]
signing_secrets = ["{secrets[0]}", "{secrets[1]}"]
"""


def pick(answers: dict[str, Any], reference: str) -> Any:
    name, *path = reference.split(".")
    found = answers[name]
    for part in path:
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def resolved(value: Any, answers: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return pick(answers, value[1:])
    if isinstance(value, list):
        return [resolved(each, answers) for each in value]
    if isinstance(value, dict):
        return {name: resolved(each, answers) for name, each in value.items()}
    return value


def message_of(found: dict[str, Any]) -> dict[str, Any]:
    if (text := found.pop("payload", None)) is not None:
        found["payload_base64"] = base64.b64encode(text.encode()).decode()
    return found


def item_of(found: dict[str, Any], with_id: bool) -> dict[str, Any]:
    if "error" in found:
        error = {name: found["error"][name] for name in ("code", "detail", "index", "field") if name in found["error"]}
        return {"error": {**error, **({"id": found["id"]} if "id" in found else {})}}
    return found if with_id else {name: value for name, value in found.items() if name != "id"}


def problem_of(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("status", "code", "detail", "field") if name in found}


def result_of(op: str, status: int, headers: dict[str, str], body: Any) -> Any:
    """What a client makes of an answer, in the names of the API."""
    body = json.loads(json.dumps(body))
    if "outcome" in body and status >= 400:
        # A refusal about one message is an outcome.
        return {name: value for name, value in body.items() if name not in PROBLEM_FIELDS}
    if headers["content-type"] == "application/problem+json":
        if (op, body["code"]) in (("get", "unknown_message"), ("delete", "unknown_topic")):
            return None if op == "get" else "unknown"
        more: dict[str, Any] = {"retry_after": int(headers["retry-after"])} if "retry-after" in headers else {}
        if REQUEST_ID in headers:
            more["request_id"] = headers[REQUEST_ID]
        return {"error": {**problem_of(body), **more}}
    if op in ("create", "info"):
        return {name: body[name] for name in TOPIC_FIELDS if name in body}
    if op == "topics":
        return [{name: each[name] for name in TOPIC_FIELDS if name in each} for each in body["topics"]]
    if op == "get":
        return message_of(body)
    if op == "claim":
        messages = [message_of(each) for each in body["messages"]]
        if "results" not in body:
            return messages
        error = {"error": problem_of(body["error"])} if "error" in body else {}
        return {"messages": messages, "results": [item_of(each, True) for each in body["results"]], **error}
    if op == "delete":
        return body["outcome"]
    return [item_of(each, True) for each in body["results"]] if "results" in body else body


def run(node: Node, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers: dict[str, Any] = {}
    recorded = []
    for step in steps:
        args, request = resolved(step["args"], answers), resolved(step["request"], answers)
        more = {"authorization": f"Bearer {step.get('token', ALL)}"}
        names = HEADERS
        if "request_id" in step:
            more[REQUEST_ID], names = step["request_id"], (*HEADERS, REQUEST_ID)
        status, headers, content = node.call(request["method"], request["path"], request.get("body"), **more)
        answers[step["name"]] = json.loads(content)
        kept = {name: headers[name] for name in names if name in headers}
        answer = {"status": status, "headers": kept, "body": answers[step["name"]]}
        result = result_of(step["op"], status, kept, answer["body"])
        recorded.append({**step, "args": args, "request": request, "answer": answer, "result": result})
    return recorded


def homes(node: Node) -> list[dict[str, Any]]:
    found = []
    for topic, shards in HOMES:
        path = f"/v1/topics/{topic}"
        more = {"authorization": f"Bearer {ALL}"}
        status, _, content = node.call("PUT", path, {"shards": shards}, **more)
        assert status == 201, content
        messages = [{"id": id, "due_at": LATER} for id in IDS]
        _, _, content = node.call("POST", f"{path}/messages", messages, **more)
        placed = {each["id"]: each["shard"] for each in json.loads(content)["results"]}
        seed = json.loads(node.call("GET", f"{path}/shards", **more)[2])["seed"]
        # A topic gets a seed of its own each time it is created, so this is what a check of a node rests on.
        wrong = [id for id, shard in placed.items() if shard_of(id, seed, shards) != shard]
        assert not wrong, f"{topic}, seed {seed}: {wrong} are elsewhere"
        found.append({"seed": seed, "shards": shards, "homes": placed})
    return found


class Receiver:
    """Takes webhooks and keeps them."""

    def __init__(self) -> None:
        self.came: Queue[dict[str, Any]] = Queue(64)
        came = self.came

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                names = ("webhook-id", "webhook-timestamp", "webhook-signature")
                headers = {name: self.headers[name] for name in names}
                came.put({"headers": headers, "body_base64": base64.b64encode(body).decode()})
                self.send_response(204)
                self.end_headers()

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def sign(secret: str, headers: dict[str, str], body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def signatures(node: Node, receiver: Receiver) -> list[dict[str, Any]]:
    """Deliveries of the node, and what must be refused: each is one of them with something changed."""
    payloads = {"text": b"close order 42", "JSON": b'{"order": 42}', "bytes": bytes(range(256)), "nothing": b""}
    found: list[dict[str, Any]] = []
    for name, payload in payloads.items():
        message = {"payload_base64": base64.b64encode(payload).decode()}
        status, _, content = node.call("POST", "/v1/topics/hooked/messages", message, authorization=f"Bearer {ALL}")
        assert status == 201, content
        came = receiver.came.get(timeout=30)
        assert base64.b64decode(came["body_base64"]) == payload
        wanted = " ".join(sign(secret, came["headers"], payload) for secret in SECRETS[:2])
        assert came["headers"]["webhook-signature"] == wanted, "the node does not sign as the specification says"
        now = int(came["headers"]["webhook-timestamp"])
        found.append({"name": name, "secrets": SECRETS[:1], **came, "now": now, "is_valid": True})
    first, now = found[0], found[0]["now"]
    body = base64.b64encode(b"close order 43").decode()
    headers = first["headers"]
    of_v2 = headers["webhook-signature"].replace("v1,", "v2,")
    only_first = {**headers, "webhook-signature": headers["webhook-signature"].split()[0]}
    # A header that came twice, as servers join it.
    joined = {**headers, "webhook-signature": f"v1,AAAA, {headers['webhook-signature'].split()[0]}"}
    changes = [
        ("by the second secret alone", True, {"secrets": SECRETS[1:2]}),
        ("by one of two secrets", True, {"secrets": SECRETS[1:]}),
        ("to one that knows the next secret and the one before", True, {"secrets": [SECRETS[2], SECRETS[0]]}),
        ("five minutes late", True, {"now": now + 300}),
        ("with a signature that is none before the right one", True, {"headers": joined}),
        ("by an unknown secret", False, {"secrets": SECRETS[2:]}),
        ("by the other secret", False, {"secrets": SECRETS[1:2], "headers": only_first}),
        ("too late", False, {"now": now + 301}),
        ("from the future", False, {"now": now - 301}),
        ("with another body", False, {"body_base64": body}),
        ("with another id", False, {"headers": {**headers, "webhook-id": "0" * 32}}),
        ("at another time", False, {"headers": {**headers, "webhook-timestamp": str(now + 1)}}),
        ("at no time", False, {"headers": {**headers, "webhook-timestamp": "now"}}),
        ("at a time of 400 digits", False, {"headers": {**headers, "webhook-timestamp": "9" * 400}}),
        ("at a time of 5,000 digits", False, {"headers": {**headers, "webhook-timestamp": "9" * 5000}}),
        ("before 1970", False, {"headers": {**headers, "webhook-timestamp": f"-{now}"}}),
        ("with a signature that is not ASCII", False, {"headers": {**headers, "webhook-signature": "v1,é☕"}}),
        ("with a signature that is not base64", False, {"headers": {**headers, "webhook-signature": "v1,%% v1, v1"}}),
        ("without a signature", False, {"headers": {**headers, "webhook-signature": ""}}),
        ("of another version", False, {"headers": {**headers, "webhook-signature": of_v2}}),
        ("cut short", False, {"headers": {**headers, "webhook-signature": only_first["webhook-signature"][:-4]}}),
    ]
    return found + [{**first, **change, "name": name, "is_valid": is_valid} for name, is_valid, change in changes]


def fields_of(document: dict[str, Any], schema: dict[str, Any]) -> tuple[set[str], set[str]]:
    """All fields of an object, and those that are always there."""
    if "$ref" in schema:
        return fields_of(document, document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    fields, required = set(schema.get("properties", {})), set(schema.get("required", []))
    for part in schema.get("allOf", []):
        more, needed = fields_of(document, part)
        fields, required = fields | more, required | needed
    return fields, required


def shapes(node: Node) -> dict[str, Any]:
    document = json.loads(node.call("GET", "/openapi.json", authorization=f"Bearer {ALL}")[2])
    schemas = document["components"]["schemas"]
    found: dict[str, Any] = {}
    for name in SHAPES:
        fields, required = fields_of(document, schemas[name])
        found[name] = {"fields": sorted(fields), "required": sorted(required)}
    fields, required = fields_of(document, schemas["TopicView"])
    known = set(TOPIC_FIELDS)
    found["TopicView"] = {"fields": sorted(fields & known), "required": sorted(required & known)}
    unknown = set(RETRYABLE) - set(schemas["Code"]["enum"])
    assert not unknown, f"codes that no problem has: {unknown}"
    return {"schemas": found, "retryable": RETRYABLE}


def made() -> dict[str, Any]:
    receiver = Receiver()
    config = CONFIG.format(port=receiver.server.server_address[1], secrets=SECRETS, all=ALL, reader=READER, slow=SLOW)
    node = Node(config)
    try:
        problems = run(node, PROBLEMS)
        return {"calls": run(node, CALLS), "problems": problems, "homes": homes(node),
                "addresses": ADDRESSES, "signatures": signatures(node, receiver), "shapes": shapes(node)}
    finally:
        node.remove()


def differences(there: Any, here: Any, at: str) -> list[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        if there.keys() != here.keys():
            return [f"{at}: fields {sorted(there)} are now {sorted(here)}"]
        return [each for name in there for each in differences(there[name], here[name], f"{at}.{name}")]
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = enumerate(zip(there, here, strict=True))
        return [each for number, pair in pairs for each in differences(*pair, f"{at}.{number}")]
    if there == here or (at.rpartition(".")[2] in VOLATILE and type(there) is type(here)):
        return []
    return [f"{at}: {there!r} is now {here!r}"]


def written(value: Any) -> str:
    """JSON with one vector a line."""
    if isinstance(value, dict):
        return json.dumps(value, indent=1) + "\n"
    return "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in value) + "\n]\n"


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in ("write", "check"):
        raise SystemExit(__doc__)
    found = made()
    if sys.argv[1] == "write":
        for name, value in found.items():
            (HERE / f"{name}.json").write_text(written(value))
        return 0
    # Signatures and homes were checked as they came: each run has others.
    broken = []
    for name in ("calls", "problems", "shapes", "addresses"):
        there = json.loads((HERE / f"{name}.json").read_text())
        if name in ("calls", "problems"):
            for step in (*there, *found[name]):
                # Receipts of a run are in the requests of that run.
                del step["args"], step["request"]
        broken += differences(there, found[name], name)
    for line in broken:
        print(line)
    print("the API has changed: mend it, or write the vectors again" if broken else "the node answers as recorded")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
