"""Servers that a measurement starts for itself, on free ports of this machine."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time

# How often, and how many times, is looked whether a server listens.
LOOK_EVERY_S = 0.05
LOOKS_MAX = 600


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until_open(port):
    """Waits until somebody listens; a node does once it is ready."""
    for _ in range(LOOKS_MAX):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(LOOK_EVERY_S)
    raise SystemExit(f"nobody listens on port {port}")


@contextlib.contextmanager
def node(program, settings=""):
    """A node on an embedded store in an empty folder, as (port, process); it is killed and its folder removed at the end."""
    port, folder = free_port(), tempfile.mkdtemp()
    with open(os.path.join(folder, "duetime.toml"), "w") as file:
        file.write(settings)
    command = [os.path.abspath(program), "serve", "--config", "duetime.toml", "--store", "embedded:data"]
    with open(os.path.join(folder, "log"), "w") as log:
        process = subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"], cwd=folder, stdout=log, stderr=log)
    try:
        until_open(port)
        yield port, process
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def quantiles(found, **parts):
    """Of sorted milliseconds, as they are printed: quantiles(took, p50=0.5, max=0.99999)."""
    return {name: round(found[int(len(found) * part)], 1) for name, part in parts.items()}
