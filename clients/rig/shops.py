"""Drives a shop of examples/ as its customers, Duetime and strangers do, and judges what its orders become.

    DUETIME_BIN=… python3 clients/rig/shops.py FOLDER COMMAND …

The command is run in FOLDER and finds `DUETIME_URL`, `WEBHOOK_SECRET`, `ORDER_TIMEOUT` and `PORT`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from node import Node, free_port

KEY = b"a key of this test alone"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
#: The shop is ready, and an order is closed, within this time.
WAIT_MAX_S = 30.0
SINK = """
[sinks.shop]
type = "http"
url = "http://127.0.0.1:{port}/due"
allow = ["127.0.0.1"]
signing_secrets = ["{secret}"]
"""


class Shop:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, body or None, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_MAX_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read()
        except urllib.error.URLError:
            return 0, b""

    def state(self, order: str) -> str:
        status, body = self.call("GET", f"/orders/{order}")
        return json.loads(body)["state"] if status == 200 else str(status)

    def due(self, order: str, key: bytes = KEY, id: str = "one-delivery", at: float | None = None) -> int:
        """A webhook such as Duetime sends."""
        body, sent = json.dumps({"order": order}).encode(), str(int(time.time() if at is None else at))
        signature = base64.b64encode(hmac.new(key, f"{id}.{sent}.".encode() + body, hashlib.sha256).digest()).decode()
        return self.call(
            "POST", "/due", body, webhook_id=id, webhook_timestamp=sent, webhook_signature=f"v1,{signature}",
            content_type="application/json",
        )[0]  # fmt: skip


def wait(what: str, seen: Callable[[], object], wanted: object) -> None:
    end = time.monotonic() + WAIT_MAX_S
    while (found := seen()) != wanted:
        if time.monotonic() > end:
            raise SystemExit(f"{what}: {found!r}, and not {wanted!r}")
        time.sleep(0.05)


def same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise SystemExit(f"{what}: {found!r}, and not {wanted!r}")


def drive(shop: Shop, node: Node) -> None:
    def counts() -> list[int]:
        topic = json.loads(node.call("GET", "/v1/topics/shop-orders")[2])
        return [topic["scheduled"], topic["in_flight"], topic["dead"]]

    wait("an order that nobody placed", lambda: shop.state("none"), "404")
    for order in ("late", "paid", "late"):
        same(f"{order} is placed, perhaps again", shop.call("PUT", f"/orders/{order}")[0], 200)
    for _ in range(2):
        same("a payment, and the same again", shop.call("POST", "/orders/paid/payment")[0], 200)
    same("what waits is the check of the order that is not paid", counts(), [1, 0, 0])
    wait("an order that was not paid in time", lambda: shop.state("late"), "closed")
    same("a payment of what is closed", shop.call("POST", "/orders/late/payment")[0], 409)

    same("a payment of an order that nobody placed", shop.call("POST", "/orders/none/payment")[0], 404)
    shop.call("PUT", "/orders/open")
    same("a stranger's webhook", shop.due("open", key=b"a stranger's key"), 401)
    same("a webhook of yesterday", shop.due("open", at=time.time() - 86_400), 401)
    same("a webhook without a signature", shop.call("POST", "/due", b'{"order": "open"}')[0], 401)
    same("what they did", shop.state("open"), "open")
    for _ in range(2):
        same("a webhook, and the same again", shop.due("open"), 204)
    same("what it did", shop.state("open"), "closed")
    same("a check that comes in spite of a payment", shop.due("paid"), 204)
    same("what it did", shop.state("paid"), "paid")
    same("a check of an order that was never stored", shop.due("none"), 204)

    wait("nothing is left", counts, [0, 0, 0])
    node.end(signal.SIGKILL)
    same("no order without its check, while no node is there", shop.call("PUT", "/orders/lost")[0] // 100, 5)
    same("it", shop.state("lost"), "404")
    node.start()


def main() -> None:
    folder, command, port = sys.argv[1], sys.argv[2:], free_port()
    node = Node(SINK.format(port=port, secret=SECRET))
    places = {"DUETIME_URL": node.url, "WEBHOOK_SECRET": SECRET, "ORDER_TIMEOUT": "10s", "PORT": str(port)}
    with tempfile.TemporaryDirectory() as scratch, (Path(scratch) / "log").open("w+") as log:
        places["SHOP_DB"] = str(Path(scratch) / "shop.db")
        command = [word.replace("$PORT", str(port)) for word in command]
        app = subprocess.Popen(command, cwd=folder, env={**os.environ, **places}, stdout=log, stderr=log)
        try:
            drive(Shop(port), node)
            app.terminate()
            same("its end", app.wait(WAIT_MAX_S) in (0, -signal.SIGTERM), True)
            print(f"{folder}: passed")
        except (SystemExit, Exception):
            log.seek(0)
            print(log.read()[-4000:], file=sys.stderr)
            raise
        finally:
            app.kill()
            node.remove()


if __name__ == "__main__":
    main()
