"""Runs a command with a node, and a proxy with faults in front of it; ends with the command's status.

    python3 clients/rig/with_node.py [--test-clock] COMMAND …

The command finds `DUETIME_URL` (the proxy), `DUETIME_DIRECT` (the node itself) and `DUETIME_CONTROL` (see proxy.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from node import Node
from proxy import Faults, serve_control, serve_proxy

CONFIG = """
[resize]
leave_due_within = "0s"
"""


def main() -> int:
    flags, command = ((sys.argv[1],), sys.argv[2:]) if sys.argv[1] == "--test-clock" else ((), sys.argv[1:])
    node = Node(CONFIG, flags)
    faults = Faults()

    def do(what: str) -> None:
        if what == "start":
            node.start()
        elif what == "kill":
            node.end(signal.SIGKILL)
        else:
            node.restart()

    proxy, control = serve_proxy(lambda: node.port, faults), serve_control(faults, do)
    places = {
        "DUETIME_URL": f"http://127.0.0.1:{proxy.server_address[1]}",
        "DUETIME_DIRECT": node.url,
        "DUETIME_CONTROL": f"http://127.0.0.1:{control.server_address[1]}",
    }
    # So that the node ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        return subprocess.run(command, env={**os.environ, **places}, check=False).returncode
    finally:
        node.remove()


if __name__ == "__main__":
    sys.exit(main())
