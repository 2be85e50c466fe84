"""Text for users is plain American English: no word of a short list of banned ones."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import icevirt
from docs import words

ROOT = Path(__file__).parents[2]
PACKAGES = ("icevirt", "scanners/icevirt_scanners")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
LONGEST = 100  # characters of a module's first line

BAD = '''"""What is told of a module."""


class Public:
    """Whoever sees this."""

    def method(self):
        """Honour those of others."""

    def _hidden(self):
        """Nobody."""


def act(wanted):
    """Alike."""
    told = {"colour": wanted}  # names and comments are not for users
    raise SomeError(
        f"{wanted} is no file, " "for want of a better one",
        do="Ask somebody.",
        fact=told,
    )


NAME = typer.Option(help="What becomes of files.")
'''


@pytest.fixture(scope="module")
def public() -> dict[Path, frozenset[str]]:
    """Return the names that users see, with the classes that these inherit from, by file."""
    names: dict[Path, set[str]] = defaultdict(set)
    for name in icevirt.__all__:
        value = getattr(icevirt, name)
        for each in inspect.getmro(value) if inspect.isclass(value) else [value]:
            if getattr(each, "__module__", "").startswith("icevirt") and hasattr(each, "__name__"):
                names[Path(inspect.getfile(each))].add(each.__name__)
    return {path: frozenset(each) for path, each in names.items()}


def found(texts: Iterator[words.Text]) -> list[str]:
    return [line for text in texts for line in text.banned()]


@pytest.mark.ci
def test_no_module_uses_a_banned_word_to_its_users(public):
    assert [
        line
        for path in MODULES
        for line in found(
            words.of_source(path.relative_to(ROOT), path.read_text(), public.get(path, frozenset()))
        )
    ] == []


def test_no_page_uses_a_banned_word():
    assert [
        line
        for path in PAGES
        for line in found(words.of_page(path.relative_to(ROOT), path.read_text()))
    ] == []


def test_each_module_says_in_a_sentence_what_it_does():
    assert [
        str(path.relative_to(ROOT))
        for path in MODULES
        if not (first := (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0])
        or not first.endswith(".")
        or len(first) > LONGEST
    ] == []


def test_the_collector_finds_banned_words_where_users_read_and_nowhere_else():
    texts = words.of_source(Path("bad.py"), BAD, frozenset({"Public"}))
    assert sorted(line.split("; ")[0] for line in found(texts)) == [
        "bad.py:18: 'for want of'",
        "bad.py:18: 'is no file'",
        "bad.py:19: 'somebody'",
        "bad.py:1: 'told'",
        "bad.py:24: 'What becomes of'",
        "bad.py:4: 'Whoever'",
        "bad.py:7: 'Honour'",
        "bad.py:7: 'those of'",
    ]


def test_display_speaks_in_every_string():
    texts = words.of_source(Path("icevirt/display/x.py"), 'LINE = "neighbours"\n')
    assert found(texts) == ["icevirt/display/x.py:1: 'neighbours'; better: neighbor"]


def test_code_on_a_page_is_not_prose():
    page = "Colour.\n```\ncolour\n```\n`colour` and [this](docs/colour.md)\n"
    assert [line.split(";")[0] for line in found(words.of_page(Path("a.md"), page))] == [
        "a.md:1: 'Colour'"
    ]
