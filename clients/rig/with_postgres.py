"""Runs a command with a PostgreSQL of its own, in a scratch folder; ends with the command's status.

    python3 clients/rig/with_postgres.py COMMAND …

The command finds `DATABASE`. Looks for the programs where Debian puts them, then in the PATH.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from node import free_port

START_MAX_S = 60.0


def program(name: str) -> str:
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(debian[-1]) if debian else shutil.which(name)
    if not found:
        raise SystemExit(f"{name} is not there: install PostgreSQL, Debian's package postgresql")
    return found


def main() -> int:
    initdb, postgres, ready = program("initdb"), program("postgres"), program("pg_isready")
    folder, port = Path(tempfile.mkdtemp(prefix="duetime-postgres-")), free_port()
    # PostgreSQL does not run as root.
    other: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        other = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    log = (folder / "log").open("ab")
    options: dict[str, Any] = {"cwd": folder, "stdout": log, "stderr": log, **other}
    server = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        subprocess.run([initdb, "-D", folder / "data", "-U", "shop", "-A", "trust", "--no-sync"], check=True, **options)
        server = subprocess.Popen(
            [postgres, "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1",
             "-c", "fsync=off"], **options,
        )  # fmt: skip
        end = time.monotonic() + START_MAX_S
        while subprocess.run([ready, "-q", "-h", "127.0.0.1", "-p", str(port)], check=False).returncode != 0:
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"PostgreSQL did not start:\n{(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        database = f"postgresql://shop@127.0.0.1:{port}/postgres"
        return subprocess.run(sys.argv[1:], env={**os.environ, "DATABASE": database}, check=False).returncode
    finally:
        if server:
            server.send_signal(signal.SIGQUIT)
            server.wait(START_MAX_S)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
