"""Writes the pages in docs/clients from the sources of the clients, or says which are not as these.

    python3 clients/rig/reference/make.py write LANGUAGE …       python, typescript, go
    python3 clients/rig/reference/make.py check LANGUAGE …

TypeScript needs what `clients/test` installs.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCE = ROOT / "clients/python/src/duetime"
COLUMNS = 118

HEAD = """# {title}

For users of the {title}: each public name of `{folder}`. What holds for all calls is in
[Clients](../CLIENTS.md). This page is made of the source by `clients/rig/reference/make.py`; a test compares the two.
"""
TITLES = {"python": "Python client", "typescript": "TypeScript client", "go": "Go client"}


def paragraphs(doc: str) -> list[str]:
    """Those of a comment that are prose; code in it is left to the source."""
    found = [part for part in re.split(r"\n\s*\n", doc.strip()) if part and not part.startswith(("\t", "    "))]
    return [" ".join(part.split()) for part in found]


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def item(member: dict[str, Any]) -> str:
    doc = " ".join(paragraphs(member["doc"]))
    return wrapped(f"- `{member['text']}`" + (f": {doc}" if doc else ""), "  ")


def page(language: str, names: list[dict[str, Any]]) -> str:
    lines = [HEAD.format(title=TITLES[language], folder=f"clients/{language}")]
    for name in sorted(names, key=lambda name: str(name["name"]).lower()):
        lines.append(f"## {name['name']}\n")
        if name["text"]:
            lines.append(f"```{language}\n{wrapped(name['text'], '    ')}\n```\n")
        lines += [f"{wrapped(part)}\n" for part in paragraphs(name["doc"])]
        if name["members"]:
            lines.append("\n".join(item(member) for member in name["members"]) + "\n")
    return "\n".join(lines).rstrip("\n") + "\n"


# Python: read, and not imported, so that nothing has to be installed.


class Module:
    def __init__(self, path: Path) -> None:
        text = path.read_text()
        self.lines, self.body = text.splitlines(), ast.parse(text).body

    def comment(self, node: ast.stmt) -> str:
        """The `#:` lines above a statement."""
        found: list[str] = []
        for line in reversed(self.lines[: node.lineno - 1]):
            if not line.strip().startswith("#:"):
                break
            found.insert(0, line.strip()[2:].strip())
        return "\n".join(found)


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    def one(argument: ast.arg, default: ast.expr | None) -> str:
        text = f"{argument.arg}: {ast.unparse(argument.annotation)}" if argument.annotation else argument.arg
        return text if default is None else f"{text} = {ast.unparse(default)}"

    given = function.args
    arguments = [each for each in given.args if each.arg != "self"]
    without = [None] * (len(arguments) - len(given.defaults))
    texts = [one(*each) for each in zip(arguments, [*without, *given.defaults], strict=True)]
    if given.kwonlyargs:
        texts += ["*", *(one(*each) for each in zip(given.kwonlyargs, given.kw_defaults, strict=True))]
    if given.kwarg:
        texts.append(f"**{one(given.kwarg, None)}")
    returns = ast.unparse(function.returns) if function.returns else "None"
    word = "await " if isinstance(function, ast.AsyncFunctionDef) else ""
    return f"{word}{name}({', '.join(texts)})" + ("" if returns == "None" else f" -> {returns}")


def python_members(module: Module, kind: ast.ClassDef) -> list[dict[str, Any]]:
    found = []
    for node in kind.body:
        if isinstance(node, ast.AnnAssign):
            found.append((ast.unparse(node), module.comment(node)))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            doc = ast.get_docstring(node) or ""
            is_field = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
            field = f"{node.name}: {ast.unparse(node.returns)}" if node.returns else node.name
            found.append((field if is_field else signature(node, node.name), doc))
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            for each in node.body:
                field = ast.unparse(each.targets[0]).removeprefix("self.") if isinstance(each, ast.Assign) else "_"
                comment = module.comment(each)
                if field.isidentifier() and not field.startswith("_") and (comment or field not in given):
                    found.append((field, comment))
    return [{"text": text, "doc": doc} for text, doc in found]


def awaited(entry: dict[str, Any], of: dict[str, Any]) -> None:
    """Leaves out of an asynchronous class what the synchronous one says already; a test holds their names equal."""
    said = {member["doc"] for member in of["members"]}
    entry["members"] = [member for member in entry["members"] if member["doc"] not in said]
    differ = "; these differ" if entry["members"] else ""
    entry["doc"] += f"\n\nIt has the names of `{of['name']}`, to be awaited where they ask a node{differ}."


def python_names() -> list[dict[str, Any]]:
    modules = {path.stem: Module(path) for path in SOURCE.glob("*.py")}
    places: dict[str, tuple[Module, ast.stmt]] = {}
    for module in modules.values():
        for node in module.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                places[node.name] = (module, node)
            elif isinstance(node, ast.AnnAssign):
                places[ast.unparse(node.target)] = (module, node)
    found = []
    for name in all_of(modules["__init__"]):
        module, node = places[name]
        entry: dict[str, Any] = {"name": name, "text": "", "doc": "", "members": []}
        if isinstance(node, ast.ClassDef):
            entry["doc"] = ast.get_docstring(node) or ""
            kinds = [(module, node)]
            for base in node.bases:
                of = places.get(ast.unparse(base))
                if of and isinstance(of[1], ast.ClassDef) and ast.unparse(base) not in all_of(modules["__init__"]):
                    kinds.insert(0, (of[0], of[1]))
                elif of:
                    entry["doc"] += f"\n\nA {ast.unparse(base)}."
            entry["members"] = [member for kind in kinds for member in python_members(*kind)]
            makers = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            # Users do not make the others.
            if makers and not name.endswith(("Delivery", "Topic")):
                entry["text"] = signature(makers[0], name)
        elif isinstance(node, ast.FunctionDef):
            entry["text"], entry["doc"] = signature(node, name), ast.get_docstring(node) or ""
        elif isinstance(node, ast.AnnAssign) and node.value:
            entry["text"], entry["doc"] = f"{name} = {ast.unparse(node.value)}", module.comment(node)
        found.append(entry)
    by_name = {entry["name"]: entry for entry in found}
    for entry in found:
        if entry["name"].startswith("Async"):
            awaited(entry, by_name[entry["name"].removeprefix("Async")])
    return found


def all_of(module: Module) -> list[str]:
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise SystemExit("__init__.py has no __all__")


def names_of(language: str) -> list[dict[str, Any]]:
    if language == "python":
        return python_names()
    if language == "go":
        command = ["go", "run", str(HERE / "names.go"), str(ROOT / "clients/go")]
    else:
        index = ROOT / "clients/typescript/src/index.ts"
        command = ["node", str(HERE / "names.mjs"), str(ROOT / "target/clients/npm"), str(index)]
    names: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return [{**name, "members": name["members"] or []} for name in names]


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] not in ("write", "check"):
        raise SystemExit(__doc__)
    for language in sys.argv[2:]:
        path, text = ROOT / f"docs/clients/{language}.md", page(language, names_of(language))
        if sys.argv[1] == "write":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif text != path.read_text():
            raise SystemExit(f"docs/clients/{language}.md is not as the source: run make.py write {language}")


if __name__ == "__main__":
    main()
