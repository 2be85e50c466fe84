"""Each code of an error has its explanation, and each explanation a code; both are shown."""

import inspect
import json

import pytest

from docs import words
from icevirt import errors
from icevirt.cli.output import show_error
from icevirt.display.explanations import explanation, explanations

CODES = list(
    dict.fromkeys(
        each.code
        for each in vars(errors).values()
        if inspect.isclass(each) and issubclass(each, errors.IcevirtError)
    )
)


def test_each_code_has_a_page_and_each_page_a_code():
    assert [each.code for each in explanations().codes] == [*CODES[1:], CODES[0]]  # the root last


@pytest.mark.parametrize("page", explanations().codes, ids=lambda page: page.code)
def test_a_page_names_causes_and_a_remedy_in_both_languages(page):
    first, causes, *rest = page.text.split("\n**")
    assert page.summary.endswith(".")
    assert first.startswith(page.summary[:-1].split("`")[0])
    assert causes.startswith("Causes**\n\n- ")
    python, command = rest
    assert python.startswith("In Python**:")
    assert "```py\n" in python
    assert command.startswith("On the command line**")
    assert "icevirt " in command
    assert [line for text in words.of_page("page", page.text) for line in text.banned()] == []


def test_the_command_shows_a_page_by_code_and_by_class_and_lists_all(run):
    status, shown, _ = run("explain", "combine")
    assert (status, run("explain", "CombineError")[1]) == (0, shown)
    assert "icevirt build 'archive/*.nc' repo --on-mismatch eras" in shown
    assert max(map(len, shown.splitlines())) < 300
    assert json.loads(run("explain", "combine", "-o", "json")[1])["code"] == "combine"
    listed = run("explain")[1]
    assert [code for code in CODES if f"\n{code} " not in f"\n{listed}"] == []


def test_an_unknown_code_names_near_ones():
    with pytest.raises(errors.NotFoundError, match="icevirt explain stale-reference"):
        explanation("stale-references")
    with pytest.raises(errors.NotFoundError, match="lists all codes"):
        explanation("qqqq")


def test_an_error_on_a_terminal_names_its_page(monkeypatch, capsys):
    error = errors.StorageError("the disk is full", do="Free some space.")
    show_error(error)
    (plain,) = capsys.readouterr().err.splitlines()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert plain == "icevirt: the disk is full. Free some space."
    show_error(error)
    assert capsys.readouterr().err.splitlines() == [
        "icevirt: the disk is full",
        "Free some space.",
        "more: icevirt explain storage",
    ]
