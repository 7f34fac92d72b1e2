"""Lays out a Go module as a proxy of modules serves it, in a folder.

    python3 clients/rig/go_proxy.py SOURCE MODULE VERSION FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path


def main() -> None:
    source, module, version, folder = Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    shutil.rmtree(folder, ignore_errors=True)
    place = folder / module / "@v"
    place.mkdir(parents=True)
    (place / "list").write_text(f"{version}\n")
    (place / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"}))
    shutil.copy(source / "go.mod", place / f"{version}.mod")
    with zipfile.ZipFile(place / f"{version}.zip", "w") as archive:
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            archive.write(file, f"{module}@{version}/{file.relative_to(source)}")


if __name__ == "__main__":
    main()
