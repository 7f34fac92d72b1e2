"""A proxy in front of a node that does to requests what networks do: delays, cuts and repeats them.

A fault names requests by method and a part of the path, and how many of them it meets:

    {"method": "POST", "path": "/v1/topics/t/ack", "do": "cut_answer", "times": 1}

| do | |
|---|---|
| `delay` | forwards it after `seconds` |
| `delay_answer` | forwards it at once and its answer after `seconds` |
| `cut` | closes the connection, forwards nothing |
| `cut_answer` | forwards it and closes the connection without the answer |
| `repeat` | forwards it twice, answers what the second one got |
| `late` | closes the connection, and forwards it after `seconds` |
| `answer` | answers `status`, `headers`, `body` and forwards nothing |
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: Requests that are remembered.
REQUESTS_MAX = 20_000
#: Longest answer of the node that is waited for.
ANSWER_MAX_S = 90.0
#: Headers of one connection, and those that this proxy writes itself.
HOP = {"connection", "content-length", "transfer-encoding", "keep-alive"}


class Faults:
    """What is done to which requests, and which came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[dict[str, Any]] = []
        self._seen: list[dict[str, Any]] = []

    def add(self, faults: list[dict[str, Any]]) -> None:
        with self._lock:
            self._faults += [{"times": 1, "method": "POST", **fault} for fault in faults]

    def meet(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fault of a request, `{}` if none; and what is remembered of it."""
        seen = {"method": method, "path": path, "headers": headers, "body": body.decode(errors="replace")}
        with self._lock:
            if len(self._seen) < REQUESTS_MAX:
                self._seen.append(seen)
            for fault in self._faults:
                if fault["times"] > 0 and fault["method"] == method and fault["path"] in path:
                    fault["times"] -= 1
                    seen["fault"] = fault["do"]
                    return fault, seen
        return {}, seen

    def seen(self, part: str) -> list[dict[str, Any]]:
        with self._lock:
            return [dict(request) for request in self._seen if part in request["path"]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is nothing to be said."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def write(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def serve_proxy(port_of_node: Callable[[], int], faults: Faults) -> _Server:
    """Listens on a free port; `server_address` names it."""

    def forward(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        node = http.client.HTTPConnection("127.0.0.1", port_of_node(), timeout=ANSWER_MAX_S)
        try:
            sent = {name: value for name, value in headers.items() if name not in HOP}
            if body or method in ("POST", "PUT", "PATCH"):
                sent["content-length"] = str(len(body))
            node.request(method, path, body or None, sent)
            answer = node.getresponse()
            kept = {name.lower(): value for name, value in answer.getheaders() if name.lower() not in HOP}
            return answer.status, kept, answer.read()
        finally:
            node.close()

    class Proxy(_Handler):
        def meet(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.body()
            fault, seen = faults.meet(self.command, self.path, headers, body)
            request = (self.command, self.path, headers, body)
            do, seconds = fault.get("do"), fault.get("seconds", 0.0)
            if do == "answer":
                self.write(fault["status"], fault.get("headers", {}), json.dumps(fault.get("body", {})).encode())
                return
            if do in ("cut", "late"):
                self.cut()
                if do == "late":
                    time.sleep(seconds)
                    seen["status"] = forward(*request)[0]
                return
            try:
                if do == "delay":
                    time.sleep(seconds)
                if do == "repeat":
                    forward(*request)
                answer = forward(*request)
            except (OSError, http.client.HTTPException):
                # The node is not there.
                self.cut()
                return
            seen["status"] = answer[0]
            if do == "delay_answer":
                time.sleep(seconds)
            if do == "cut_answer":
                self.cut()
                return
            self.write(*answer)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = meet

    server = _Server(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def serve_control(faults: Faults, node: Callable[[str], None]) -> _Server:
    """`POST /faults`, `GET /requests?path=PART`, `POST /node` with `{"do": "restart"}`, `"kill"`, `"start"`."""

    class Control(_Handler):
        def do_GET(self) -> None:
            part = parse_qs(urlsplit(self.path).query).get("path", [""])[0]
            self.write(200, {"content-type": "application/json"}, json.dumps(faults.seen(part)).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.body())
            if self.path == "/node":
                node(asked["do"])
            else:
                faults.add(asked)
            self.write(200, {"content-type": "application/json"}, b"{}")

    server = _Server(("127.0.0.1", 0), Control)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
