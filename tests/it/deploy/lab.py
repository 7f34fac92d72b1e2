"""Servers and nodes on ports of their own, for the scripts beside this one; what was started ends with the script.

`DUETIME_TEST_PROGRAM_UNDER` names the program of the nodes.
"""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PROGRAM = os.environ["DUETIME_TEST_PROGRAM_UNDER"]
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
PATIENCE_S = 60
"""Longest wait for anything that is to come."""
FOLDER = tempfile.mkdtemp(prefix="duetime-deploy-")
_children = []


class Failed(Exception):
    """A command did not go well."""


@atexit.register
def _end():
    for child in reversed(_children):
        child.kill()
    shutil.rmtree(FOLDER, ignore_errors=True)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def until(ready, what):
    """Waits until `ready` gives something true, and gives that."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            answer = ready()
        except (OSError, ValueError, KeyError, Failed):
            answer = None
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {PATIENCE_S} s")
        time.sleep(0.1)


def can_listen(port, address="127.0.0.1"):
    try:
        with socket.socket() as probe:
            # Connections that have ended are in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
        return True
    except OSError:
        return False


def free_port(addresses=("127.0.0.1",)):
    """A port that no connection is given, and whose bus (10,000 above) is free too."""
    # Scripts that are started together look in different places.
    for port in range(11000 + os.getpid() * 37 % 9000, 22000):
        is_free = all(can_listen(one, address) for address in addresses for one in (port, port + 10000))
        if is_free and port not in _given:
            _given.add(port)
            return port
    raise OSError("no port is free")


_given = set()


class Child:
    """A process with its output in a file."""

    def __init__(self, name, args, cwd=None, env=None):
        self.name, self.args, self.cwd, self.env = name, [str(arg) for arg in args], cwd, env
        self.log = os.path.join(FOLDER, f"{name}.log")
        self.process = None
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.args, stdout=log, stderr=log, cwd=self.cwd, env={**os.environ, **(self.env or {})}
            )
        _children.append(self.process)

    def end(self, how=signal.SIGTERM):
        """Ends it, and gives its status."""
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_S)

    def output(self):
        with open(self.log, errors="replace") as log:
            return log.read()


class Node(Child):
    """A node that is ready."""

    def __init__(self, name, args, env=None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(name, [PROGRAM, "serve", "--listen", f"127.0.0.1:{self.port}", *args],
                         env={"DUETIME_NODE_ID": name, **(env or {})})
        self.ready()

    def ready(self):
        try:
            until(lambda: ask(self.url, "GET", "/readyz")["status"] == "ready", f"{self.name} is ready")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.output()[-3000:]}") from None

    def restart(self):
        """As a supervisor does: SIGTERM, its end, a start, until it is ready."""
        assert self.end() == 0, self.output()[-3000:]
        self.start()
        self.ready()


def ask(url, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def run(*args, **options):
    """What a command printed; it has to go well."""
    done = subprocess.run([str(arg) for arg in args], capture_output=True, text=True, timeout=PATIENCE_S, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, args))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
