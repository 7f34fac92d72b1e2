"""For the site that mdbook makes of docs/ (book.toml).

    python3 .ci/book.py                  preprocessor: a link that leaves docs/ becomes the file's path
    python3 .ci/book.py check FOLDER     says which links of a built site lead nowhere
"""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINK = re.compile(r"(?<!!)\[([^]]+)\]\(((?:\.\./)+)([^)#\s]+)(?:#[^)]*)?\)")
#: Made by mdbook of the other pages.
MADE = {"404.html", "print.html", "toc.html"}


def named(text: str, depth: int) -> str:
    """Links that leave docs/ have more `../` than their page has folders."""

    def path(link: re.Match[str]) -> str:
        words, up, target = link.groups()
        if up.count("../") <= depth:
            return link[0]
        return words if target in words else f"{words} (`{target}`)"

    return LINK.sub(path, text)


def walk(items: list[dict]) -> None:
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            chapter["content"] = named(chapter["content"], (chapter["path"] or "").count("/"))
            walk(chapter["sub_items"])


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places, self.links = {""}, set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.places.add(found.get("id") or "")
        self.links.update(link for name in ("href", "src") if (link := found.get(name)))


def check(folder: Path) -> list[str]:
    paths = [path for path in folder.rglob("*.html") if path.name not in MADE]
    pages = {path.resolve(): Page(path) for path in paths}
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append(f"{path.relative_to(folder.resolve())}: {link}: no such file")
            elif target in pages and unquote(parts.fragment) not in pages[target].places:
                broken.append(f"{path.relative_to(folder.resolve())}: {link}: no such place in it")
    return broken


def main() -> None:
    if sys.argv[1:2] == ["supports"]:
        return
    if sys.argv[1:2] == ["check"]:
        broken = check(Path(sys.argv[2]))
        if broken:
            sys.exit("links of the site that lead nowhere:\n  " + "\n  ".join(broken))
        print("each link of the site leads somewhere")
        return
    _, book = json.load(sys.stdin)
    walk(book["items"])
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
