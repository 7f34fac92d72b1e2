"""What the tutorial's programs say when something is wrong; `clients/rig/pages.py` runs them as its reader does."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).resolve().parents[3] / "examples/tutorial"


def test_the_receiver_does_not_say_that_it_listens_where_another_does(tmp_path: Path) -> None:
    shutil.copy(TUTORIAL / "shop.py", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = (TUTORIAL / "hook.py").read_text().replace("8000", str(port))
        (tmp_path / "hook.py").write_text(text)
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "hook.py"]
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "Address already in use" in ran.stderr
    assert ran.stdout == ""
