"""Text of others is escaped once, for terminals, HTML and JSON."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.escaping import escape_html, escape_json, escape_line, escape_lines

SEEN = "Ünï 数 \u00a0\u3000 🌊 é"
CASES = {
    "a sequence of a terminal": ("\x1b[2J", r"\x1b[2J"),
    "one of eight bits": ("\x9b2J", r"\x9b2J"),
    "line ends": ("a\r\nb\tc", r"a\r\nb\tc"),
    "direction": ("\u202egpj\u2066x", r"\u202egpj\u2066x"),
    "nothing to see": ("a\u200bb\ufeffc\u00ad", r"a\u200bb\ufeffc\xad"),
    "ends of lines and paragraphs": ("\u2028\u2029\x85", r"\u2028\u2029\x85"),
    "tags": ("\U000e0041", r"\U000e0041"),
    "private use": ("\ue000", r"\ue000"),
    "half a letter": ("\ud800", r"\ud800"),
    "letters and spaces": (SEEN, SEEN),
}


@pytest.mark.parametrize(("text", "shown"), CASES.values(), ids=CASES.keys())
def test_what_cannot_be_seen_is_spelled_out(text, shown):
    assert escape_line(text) == shown
    assert escape_html(f"<{text}>") == f"&lt;{shown}&gt;"
    assert json.loads(escape_json([text])) == [text]


def test_lines_may_stay_apart():
    assert escape_lines("a\x1b\nb\u202e") == "a\\x1b\nb\\u202e"


@given(st.text(st.characters(codec=None)))
def test_any_text_is_safe_and_json_means_the_same(text):
    unsafe = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    for shown in (escape_line(text), escape_html(text), escape_json({text: [text]})):
        assert not {unicodedata.category(letter) for letter in shown} & unsafe
    assert json.loads(escape_json({text: [text]}, indent=1)) == {text: [text]}
