"""The documentation site has every page and every name; its programs find what is wrong."""

import importlib
import re
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import icevirt
from docs import words

pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"
FIGURES = sorted((ROOT / "docs" / "figures").glob("*.svg"))


@pytest.fixture(scope="module")
def programs():
    sys.path.insert(0, str(SITE))
    names = ("build", "python_pages", "command_pages", "link_check", "figures", "picture")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(SITE))
    for name in names:
        del sys.modules[name]


def pages_of(entries):
    for entry in entries:
        for value in entry.values():
            yield from pages_of(value) if isinstance(value, list) else [value]


def test_each_page_is_in_the_navigation_once(programs):
    config = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    shown = sorted(pages_of(config["nav"]))
    staged = [*programs["build"].sources().values(), "decisions/index.md", "examples.md"]
    staged += [f"python/{name}.md" for name, _, _ in programs["python_pages"].pages()]
    pages = [page for page in staged if page.endswith(".md")]
    assert shown == sorted(page for page in pages if not re.match(r"decisions/\d", page))


def test_each_public_name_has_an_entry(programs):
    text = "\n".join(text for _, _, text in programs["python_pages"].pages())
    names = [*icevirt.__all__, "CombineError", "Repository.open", "Session.commit"]
    left_out = {"errors", "__version__"}
    assert [n for n in names if f"{{ #{n} }}" not in text and n not in left_out] == []
    assert "[`CombineError`](errors.md#CombineError)" in text or "errors.md#" in text


def test_no_page_about_python_uses_a_banned_word(programs):
    assert [
        line
        for name, _, page in programs["python_pages"].pages()
        for text in words.of_page(Path(f"{name}.md"), page)
        for line in text.banned()
    ] == []


def test_each_command_has_its_help(programs):
    commands = [" ".join(words) for words in programs["command_pages"].commands()]
    assert {"build", "explain", "tag create"} <= set(commands)


def test_links_between_documents_become_links_between_pages(programs):
    change = programs["build"].relinked
    text = "[a](docs/limits.md#b) ![c](docs/figures/eras.svg) `[x](docs/y.md)` [d](https://e)"
    source = ROOT / "README.md"
    assert change(text, source, Path("index.md")) == (
        "[a](limits.md#b) ![c](figures/eras.svg) `[x](docs/y.md)` [d](https://e)"
    )
    up = "[h](../../README.md) [k](../scale.md)"
    source = ROOT / "docs" / "decisions" / "0001-x.md"
    assert change(up, source, Path("decisions/0001-x.md")) == "[h](../index.md) [k](../scale.md)"


def test_bars_in_the_code_of_tables_are_shown_without_backslash(programs):
    assert (
        programs["build"].piped("| `a \\| <b>` | c |") == "| <code>a &#124; &lt;b&gt;</code> | c |"
    )


def test_broken_links_are_found(programs, tmp_path):
    (tmp_path / "a.html").write_text('<h2 id="x"></h2><a href="b.html#y">1</a><a href="#x">2</a>')
    (tmp_path / "b.html").write_text(
        '<a href="c.html"></a><a href="a.html"></a><a href="https://d"><img src="https://e/f.png">'
    )
    assert list(programs["link_check"].broken(tmp_path)) == [
        "a.html: b.html#y: the page has no such anchor",
        "b.html: https://e/f.png: is loaded from another server",
        "b.html: c.html: there is no such page",
    ]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda path: path.stem)
def test_a_figure_needs_nothing_else_and_says_what_it_shows(figure):
    root = ET.fromstring(figure.read_text())
    assert root.get("aria-label")
    text = figure.read_text().replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"url\((?!['\"]?#)|@import|<script|href=\"http", text) == []


def test_the_figures_are_what_their_program_draws(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(programs["figures"], "FIGURES", tmp_path)
    programs["figures"].main()
    for path in tmp_path.glob("*.svg"):
        assert path.read_text() == (ROOT / "docs" / "figures" / path.name).read_text()


def test_the_picture_of_the_terminal_shows_the_commands(programs):
    root = ET.fromstring((ROOT / "docs" / "figures" / "terminal.svg").read_text())
    shown = "".join(root.itertext()).replace("\xa0", " ")
    assert [line for line in programs["picture"].COMMANDS if line not in shown] == []


def test_code_names_documents_that_there_are():
    found = {
        name
        for folder in ("icevirt", "scanners", "tests", "docs", ".ci")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())
    }
    there = {name for name in found if (ROOT / name).exists()}
    assert found - there <= {"docs/colour.md", "docs/limits.md", "docs/y.md"}
