"""A real node on the embedded store, in a scratch folder and on a free port. Standard library only."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

#: A node is ready, and has ended, within this time.
START_MAX_S = 30.0
#: Below those that the system gives to whoever wants any port, so that no connection takes one before it is used.
PORTS = range(10_000, 30_000)
_given: set[int] = set()


def free_port() -> int:
    """A port nobody listens on, never given twice by this process."""
    for port in random.sample(PORTS, 1000):
        with socket.socket() as taken:
            # As a node binds: what is left of connections that have ended takes no port away.
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
    raise SystemExit(f"no free port from {PORTS.start} to {PORTS.stop}")


class Node:
    """`duetime serve`, started when it is made; `DUETIME_BIN` is the program."""

    def __init__(self, config: str = "", flags: tuple[str, ...] = ()) -> None:
        binary = os.environ.get("DUETIME_BIN")
        if not binary or not os.access(binary, os.X_OK):
            raise SystemExit("set DUETIME_BIN to the program `duetime`, such as target/debug/duetime")
        self._flags = flags
        self._binary = str(Path(binary).resolve())
        self.folder = Path(tempfile.mkdtemp(prefix="duetime-clients-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (self.folder / "duetime.toml").write_text(config)
        self._log = (self.folder / "node.log").open("ab")
        self.start()

    def start(self) -> None:
        arguments = ["serve", "--config", "duetime.toml", "--listen", f"127.0.0.1:{self.port}", *self._flags]
        # The settings of this shell are not the node's.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_")}
        self._process = subprocess.Popen(
            [self._binary, *arguments], cwd=self.folder, env=clean, stdout=self._log, stderr=self._log
        )
        end = time.monotonic() + START_MAX_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the node did not start:\n{(self.folder / 'node.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def end(self, kind: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(kind)
            self._process.wait(START_MAX_S)

    def restart(self, kind: signal.Signals = signal.SIGKILL) -> None:
        self.end(kind)
        self.start()

    def remove(self) -> None:
        self.end(signal.SIGKILL)
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One request, without any help of a client library: status, headers, body."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, {name.lower(): text for name, text in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as answer:
            return answer.code, {name.lower(): text for name, text in answer.headers.items()}, answer.read()
