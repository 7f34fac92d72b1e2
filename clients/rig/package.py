"""Checks what is in packages: the client, its types, a README and the licence; no tests, caches or settings of tools.

    python3 clients/rig/package.py PACKAGE …      a wheel, an npm tarball, a crate, or a Go module as its proxy has it
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: By the end of a package's name: what its files may be called, and what must be there.
PACKAGES = {
    ".whl": (
        r"duetime/(\w+\.py|py\.typed)|duetime-[\d.]+\.dist-info/(METADATA|RECORD|WHEEL|licenses/LICENSE)",
        ["duetime/__init__.py", "duetime/py.typed", "METADATA", "licenses/LICENSE"],
    ),
    ".tgz": (
        r"package/(dist/\w+\.(js|d\.ts)|package\.json|README\.md|LICENSE)",
        ["dist/index.js", "dist/index.d.ts", "README.md", "LICENSE"],
    ),
    ".crate": (
        r"duetime-\w+-[\d.]+/((src|examples)/[\w/]+\.(rs|golden)|Cargo\.toml(\.orig)?|README\.md|LICENSE|"
        r"\.cargo_vcs_info\.json)",
        ["src/lib.rs", "Cargo.toml", "LICENSE"],
    ),
    # A module is its folder, with its tests.
    ".zip": (
        r"[\w./]+@v[\d.]+/(\w+\.go|examples/\w+/main\.go|go\.mod|README\.md|LICENSE)",
        ["client.go", "go.mod", "README.md", "LICENSE"],
    ),
}


def files(package: Path) -> dict[str, bytes]:
    if package.suffix in (".tgz", ".crate"):
        with tarfile.open(package) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            return {member.name: read.read() for member in members if (read := archive.extractfile(member))}
    with zipfile.ZipFile(package) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def faults(package: Path) -> list[str]:
    allowed, needed = PACKAGES[package.suffix]
    found = files(package)
    strange = [f"{name} does not belong in it" for name in found if not re.fullmatch(allowed, name)]
    def has(end: str) -> bool:
        return any(f"/{name}".endswith(f"/{end}") for name in found)

    missing = [f"{end} is missing" for end in needed if not has(end)]
    licence = (ROOT / "LICENSE").read_bytes()
    other = [f"{name} is not the LICENSE of the repository" for name in found
             if name.endswith("LICENSE") and found[name] != licence]  # fmt: skip
    return strange + missing + other


def main() -> None:
    broken = [f"{each}: {fault}" for each in sys.argv[1:] for fault in faults(Path(each))]
    if broken or len(sys.argv) < 2:
        sys.exit("\n".join(broken) or __doc__)


if __name__ == "__main__":
    main()
