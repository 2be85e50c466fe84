"""Collect the text that users read, and find words in it that have a better one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BANNED = {
    r"told|tells? (?:us|you|of)": "says, shows, reports, or the verb of what happens",
    r"whoever|whosoever": "the reader, the writer, you",
    r"(?:some|any|every)body|nobody": "another writer, any client, every reader, no client",
    r"what becomes of": "how to handle",
    r"for want of": "missing, because ... ran out",
    r"asked for": "requested, passed, named",
    r"alike|unlike": "equally, differently, in the same way",
    r"those of": "repeat the noun",
    r"for ever": "forever",
    r"spelt|learnt": "spelled, learned",
    r"authoris\w+": "authoriz...",
    r"(?:initialis|recognis|normalis|serialis|organis|optimis|summaris)\w+": "...iz...",
    r"behaviours?": "behavior",
    r"colour\w*": "color",
    r"honour\w*": "honor",
    r"neighbour\w*": "neighbor",
    r"licen[c]e\w*": "license",
    r"catalogues?": "catalog",
    r"centre\w*": "center",
    r"(?<!there )is no (?!longer|such|more|less|other)\w+": "is not a",
}
_BANNED = [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), say) for word, say in BANNED.items()]
_TYPER = {"Option", "Argument", "Typer", "Finding"}  # ``Option`` is also that of option objects
_LEAD = ("icevirt/display/",)  # all text there is for people


@dataclass(frozen=True)
class Text:
    """A text for users, and the place where it begins."""

    path: Path
    line: int
    text: str

    def banned(self) -> Iterator[str]:
        """Say for each banned word where it stands and what is better."""
        prose = re.sub(r"`[^`]*`|\{[^{}]*\}", " ", self.text)  # code is not prose
        for pattern, better in _BANNED:
            for found in pattern.finditer(prose):
                yield f"{self.path}:{self.line}: {found[0]!r}; better: {better}"


def of_source(path: Path, source: str, public: frozenset[str] = frozenset()) -> Iterator[Text]:
    """Yield what a module says to users.

    Args:
        path: Of the module.
        source: Its text.
        public: Names of its classes and functions whose docstrings users see.
    """
    tree = ast.parse(source)
    if first := ast.get_docstring(tree):
        yield Text(path, 1, first.splitlines()[0])
    if path.as_posix().startswith(_LEAD):
        prose = _docstrings(tree)
        yield from (
            Text(path, node.lineno, node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in prose
        )
    said: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _speaks(node):
            said += [*node.args, *(each.value for each in node.keywords)]
        elif isinstance(node, ast.keyword) and node.arg in ("do", "help"):
            said.append(node.value)
    yield from dict.fromkeys(_strings(path, said))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in public:
            yield from _documented(path, node)


def of_page(path: Path, page: str) -> Iterator[Text]:
    """Yield the lines of a page in Markdown, without its code."""
    fenced = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield Text(path, number, re.sub(r"\]\([^)]*\)", "]", line))


def _speaks(call: ast.Call) -> bool:
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name.endswith("Error") or name in _TYPER


def _strings(path: Path, nodes: list[ast.expr]) -> Iterator[Text]:
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield Text(path, each.lineno, each.value)


def _docstrings(tree: ast.AST) -> set[int]:
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _documented(path: Path, node: ast.ClassDef | ast.FunctionDef) -> Iterator[Text]:
    if text := ast.get_docstring(node):
        yield Text(path, node.lineno, text)
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            yield from _documented(path, each)
