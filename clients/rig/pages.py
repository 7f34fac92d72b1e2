"""Runs a page for readers: its commands, in its terminals, and compares what they print with what the page says.

    DUETIME_BIN=… python3 clients/rig/pages.py docs/TUTORIAL.md …

Each `sh` block is run in the terminal that the text above it names last, 1 if none. "leave it running" above a block:
it goes on until "Ctrl-C in terminal N", and ends with status 0 then, or by that signal. A `text` block is what the
block before it prints, or, where the text above it names a terminal, what runs or ran last in that one; `…` stands for
anything. A block in any other language is a part, word for word, of a file of `examples` that was named last. A page
without `cargo run --release -- serve` has a node from its start. Where it has that, what the node prints to try, and
the first steps of README.md, are done before the rest of the page, as a reader may have done them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from node import Node, free_port

ROOT = Path(__file__).resolve().parents[2]
#: Ports of a page, for the node and the receiver of webhooks; a free one takes the place of each.
NODE, HOOK = "3830", "8000"
#: A block ends, and what is left running prints what it is to print, within this time.
WAIT_MAX_S = 60.0
SERVE = "cargo run --release -- serve"
#: The section of README.md that a reader may come from.
FIRST_STEPS = "## A first order timeout\n"
#: Lines that `serve` prints to try.
TRIED = 3
#: A terminal keeps what these commands do.
KEPT = ("cd ", ". ", "export ")


def blocks(page: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, language, text, and all text since the block before."""
    above: list[str] = []
    lines = iter(enumerate(page.splitlines(), 1))
    for number, line in lines:
        if not line.startswith("```"):
            above.append(line)
            continue
        inside = []
        for _, each in lines:
            if each == "```":
                break
            inside.append(each)
        yield number, line[3:], "\n".join(inside), "\n".join(above)
        above = []


def pattern(text: str) -> re.Pattern[str]:
    parts = [r"\s+".join(re.escape(word) for word in part.split()) for part in text.split("…")]
    return re.compile(r"\s*" + r".*?".join(rf"\s*{part}\s*" for part in parts) + r"\s*", re.DOTALL)


class Run:
    """A block that was started, and what it printed."""

    def __init__(self, script: str, folder: Path, env: dict[str, str]) -> None:
        self.output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            ["bash", "-euc", script], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=self.output,
            stderr=subprocess.STDOUT, start_new_session=True,
            # A shell ignores this signal for what it starts in the background.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip

    def printed(self) -> str:
        return os.pread(self.output.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait(self) -> int:
        return self._process.wait(WAIT_MAX_S)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass


class Page:
    def __init__(self, path: str) -> None:
        self.path, self.text = path, (ROOT / path).read_text()
        self.folder = Path(tempfile.mkdtemp(prefix="duetime-pages-"))
        self.places = {NODE: str(free_port()), HOOK: str(free_port())}
        self.kept: dict[int, list[str]] = {}
        self.runs: dict[int, Run] = {}
        self.terminal, self.printed, self.has_tried = 1, "", False
        self.files: list[str] = []
        self.node: Node | None = None
        # A checkout, but for what is not needed.
        (self.folder / "clients").symlink_to(ROOT / "clients")
        shutil.copytree(ROOT / "examples", self.folder / "examples", ignore=shutil.ignore_patterns("env", "*.db"))
        for file in (self.folder / "examples/tutorial").iterdir():
            file.write_text(self.moved(file.read_text()))
        programs = self.folder / "target/release"
        programs.mkdir(parents=True)
        (programs / "duetime").symlink_to(os.environ["DUETIME_BIN"])
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_")}
        clean.pop("ORDER_TIMEOUT", None)
        self.env = {**clean, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
        self.env["DUETIME_NODE"] = f"http://127.0.0.1:{self.places[NODE]}"

    def moved(self, text: str) -> str:
        return re.sub(rf"\b({'|'.join(self.places)})\b", lambda port: self.places[port[0]], text)

    def begin(self, block: str) -> Run:
        if SERVE in block:
            block = block.replace("cargo run --release --", "exec target/release/duetime")
            block += f" --listen 127.0.0.1:{NODE}"
        block = self.moved(block)
        if "RECEIPT" in block:
            block = block.replace("RECEIPT", re.findall(r"receipt (\S+)", self.printed)[-1])
        kept = self.kept.setdefault(self.terminal, [])
        script = "\n".join([*kept, block])
        kept += [line for line in block.splitlines() if line.startswith(KEPT)]
        return Run(script, self.folder, self.env)

    def command(self, block: str, above: str) -> None:
        run = self.begin(block)
        if re.search(r"leave\s+it\s+running", above):
            self.runs[self.terminal] = run
            if SERVE in block and not self.has_tried:
                self.has_tried = True
                self.try_first(run)
            return
        self.runs.pop(0, None)
        self.runs[0] = run
        status = run.wait()
        self.printed = run.printed()
        assert status == 0, f"ended with {status}:\n{self.printed}"

    def try_first(self, node: Run) -> None:
        """Does what a node prints to try, then the first steps of README.md, line by line."""
        end, tried = time.monotonic() + WAIT_MAX_S, []
        while len(tried) < TRIED:
            assert not node.has_ended() and time.monotonic() < end, f"serve printed:\n{node.printed()}"
            time.sleep(0.1)
            tried = [line.strip() for line in node.printed().splitlines() if line.startswith("  curl ")]
        section = (ROOT / "README.md").read_text().split(FIRST_STEPS, 1)[1].split("\n## ", 1)[0]
        steps = "\n".join(text for _, language, text, _ in blocks(section) if language == "sh")
        for line in [*tried, *re.sub(r"\\\n\s*", " ", steps).splitlines()]:
            line = re.sub("^curl ", "curl --fail-with-body --silent --show-error ", line)
            run = self.begin(re.sub("^duetime ", "target/release/duetime ", line))
            status = run.wait()
            self.printed = run.printed()
            assert status == 0, f"{line}\nended with {status}:\n{self.printed}"

    def follow(self, above: str) -> None:
        """Does what the text says: goes to a terminal, presses Ctrl-C."""
        for press, number in re.findall(r"(Ctrl-C\s+in\s+)?[Tt]erminal\s+(\d)", above):
            self.terminal = int(number)
            if press:
                run = self.runs[self.terminal]
                assert not run.has_ended(), f"terminal {number} ended by itself:\n{run.printed()}"
                run.send(signal.SIGINT)
                status = run.wait()
                assert status in (0, 130, -signal.SIGINT), f"terminal {number}: {status} after Ctrl-C:\n{run.printed()}"

    def compare(self, wanted: str, above: str, last: int) -> None:
        named = re.findall(r"[Tt]erminal\s+(\d)", above)
        run = self.runs[int(named[-1]) if named else last]
        wants, end = pattern(self.moved(wanted)), time.monotonic() + WAIT_MAX_S
        while not wants.fullmatch(self.plain(run.printed())):
            assert not run.has_ended() and time.monotonic() < end, f"printed:\n{run.printed()}\nand not:\n{wanted}"
            time.sleep(0.1)

    def plain(self, printed: str) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", printed)

    def quote(self, block: str, above: str) -> None:
        named = [file for file in re.findall(r"examples/[\w./-]+\w", above) if (ROOT / file).is_file()]
        self.files = named or self.files
        texts = [(ROOT / file).read_text() for file in self.files]
        assert any(block in text for text in texts), f"none of {self.files} has:\n{block}"

    def run(self) -> int:
        count, last = 0, 0
        if SERVE not in self.text:
            self.node = Node()
            self.places[NODE] = str(self.node.port)
            self.env["DUETIME_NODE"] = self.node.url
            self.env["PATH"] = f"{self.folder / 'target/release'}:{self.env['PATH']}"
        try:
            for number, language, block, above in blocks(self.text):
                try:
                    if language == "text":
                        self.follow(above)
                        self.compare(block, above, last)
                    elif language == "sh":
                        self.follow(above)
                        self.command(block, above)
                        last = self.terminal if re.search(r"leave\s+it\s+running", above) else 0
                        count += 1
                    else:
                        self.quote(block, above)
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    others = "".join(f"\nterminal {at}:\n{run.printed()}" for at, run in self.runs.items() if at)
                    raise SystemExit(f"{self.path}:{number}: {error}\n{others}") from None
            self.follow(self.text.rsplit("```", 1)[-1])
        finally:
            for run in self.runs.values():
                run.send(signal.SIGKILL)
            if self.node:
                self.node.remove()
            shutil.rmtree(self.folder, ignore_errors=True)
        return count


def main() -> None:
    # So that what runs ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for path in sys.argv[1:]:
        began = time.monotonic()
        count = Page(path).run()
        print(f"{path}: {count} blocks of commands print what the page says ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main()
