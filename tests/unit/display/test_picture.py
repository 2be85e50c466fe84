"""Notebooks show what terminals show, as HTML."""

import ast
from html.parser import HTMLParser
from pathlib import Path

import pytest

import icevirt
from icevirt.display.descriptions import DESCRIPTIONS
from icevirt.display.render import as_text
from unit.display import samples


class Page(HTMLParser):
    """The tags and the text of a picture."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert all(name == "style" for name, _ in attrs)

    def handle_data(self, data):
        self.text += f" {data} "


def words(text):
    return {word for word in text.split() if not set(word) <= {*"─│├└"}}


VALUES = {
    "report": samples.report(findings=("y follows x",)),
    "summary": samples.summary(),
    "scanned": samples.scanned(),
    "plan": samples.plan(),
    "eras": samples.eras(),
    **samples.hostile(),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_picture_says_what_the_text_says_and_the_next_step(value):
    page = Page(value._repr_html_())
    assert page.tags <= {"div", "code", "table", "tr", "th", "td", "ul", "li", "pre"}
    assert "\x1b" not in page.text
    assert words(as_text(value, width=5000)) <= words(page.text)


def test_a_long_table_ends_with_how_many_rows_are_more():
    arrays = tuple(samples.array(f"/v{number}") for number in range(1234))
    page = Page(samples.report(arrays=arrays)._repr_html_())
    assert "/v99" in page.text
    assert "/v100 " not in page.text
    assert "and 1,134 more" in page.text


def classes():
    """Yield the classes of the package, and the names of those that they are made of."""
    for path in Path(icevirt.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name, {ast.unparse(base) for base in node.bases}


@pytest.mark.ci
def test_every_class_that_is_described_shows_itself():
    """As text and as a picture; `Pictured` does both."""
    bases = dict(classes())
    described = {name for name, each in DESCRIPTIONS.items() if each.parts}
    without = {
        name for name in described if "Pictured" not in bases[name] and not bases[name] & described
    }
    assert not without
