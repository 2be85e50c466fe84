"""Remedies are shown in the notation of Python or of the command line."""

import ast
import pickle
import re
from pathlib import Path

import pytest

from icevirt.archive.reports.build import BadFile
from icevirt.errors import CombineError, Fix, IcevirtError
from icevirt.remedy_notation import (
    COMMAND,
    REPOSITORY,
    Remedy,
    change,
    dump_remedy,
    flag_of,
    join,
    load_remedy,
    show_remedy,
    write_code,
    write_option,
    write_remedy,
)

ROOT = Path(__file__).parents[2]

BOTH = {  # as written: in Python, on the command line
    "code of its own": (
        write_remedy("Pass ", write_code('a={"b": 1}', "--a b=1"), ", or leave it."),
        'Pass a={"b": 1}, or leave it.',
        "Pass --a b=1, or leave it.",
    ),
    "an option by its name": (
        write_remedy("Name it in ", write_option("concat_dim"), "."),
        "Name it in concat_dim.",
        "Name it in --concat-dim.",
    ),
    "a value": (write_option("n", 20), "n=20", "--n 20"),
    "a value with a blank": (write_option("group", "a b"), "group='a b'", "--group 'a b'"),
    "yes": (write_option("references", True), "references=True", "--references"),
    "no": (write_option("references", False), "references=False", "--no-references"),
    "several values": (
        write_option("drop_variables", ["/a", "/b c"]),
        "drop_variables=['/a', '/b c']",
        "--drop-variable /a --drop-variable '/b c'",
    ),
    "text without code": (write_remedy("group=1 (--group 1)"),) + ("group=1 (--group 1)",) * 2,
}


def in_command(text, flags=None, repo=""):
    """Return what a command shows of a text."""
    command, repository = COMMAND.set(flags or {}), REPOSITORY.set(repo)
    try:
        return show_remedy(text)
    finally:
        COMMAND.reset(command)
        REPOSITORY.reset(repository)


@pytest.mark.parametrize("odd", BOTH)
def test_each_surface_shows_its_own_half(odd):
    text, python, command = BOTH[odd]
    assert text == python == show_remedy(text)
    assert in_command(text) == command


@pytest.mark.parametrize("odd", BOTH)
def test_pickles_and_stored_text_keep_both_halves(odd):
    text, python, command = BOTH[odd]
    for again in (pickle.loads(pickle.dumps(text)), load_remedy(dump_remedy(text))):
        assert (again, in_command(again)) == (python, command)


CONTENT = [
    "members missing=0, group=1, concat_dim=2",
    "the unit is 'n=3 (--number 3)'",
    "the file REPO/eras=1.nc",
    "drop_variables=['/a'] (--drop-variable /a)",
    "\u2063hidden (\u2063marks\u2063)",
]


@pytest.mark.parametrize("content", CONTENT)
def test_what_files_say_is_never_taken_for_an_option(content):
    flags = {each: flag_of(each) for each in ("missing", "group", "concat_dim", "n", "eras")}
    text = write_remedy(content, ": leave it out with ", write_option("drop_variables"), ".")
    assert in_command(text, flags, "my repo") == f"{content}: leave it out with --drop-variable."
    assert in_command(content, flags, "my repo") == content
    seen = content.replace("\u2063", "")
    assert load_remedy(dump_remedy(text)) == f"{seen}: leave it out with drop_variables."


@pytest.mark.parametrize("content", CONTENT[:-1])
def test_errors_keep_what_files_say(content):
    error = CombineError(
        f"differs: {content}",
        do=write_remedy(f"Repair {content}, or use ", write_option("group"), "."),
        fixes=[Fix(python="missing=1", flags=("--missing", "1"), price=f"so {content}")],
        said=content,
    )
    token = COMMAND.set({"missing": "--missing", "group": "--group"})
    try:
        said = str(pickle.loads(pickle.dumps(error)))
    finally:
        COMMAND.reset(token)
    assert said == (
        f"differs: {content} (said={content!r}). Pass --missing 1: so {content}."
        f" Repair {content}, or use --group."
    )
    assert str(error).endswith(f"Pass missing=1: so {content}. Repair {content}, or use group.")


def test_an_error_as_text_still_knows_its_code():
    error = IcevirtError("bad", do=write_remedy("Use ", write_option("group", "x"), "."), file="u")
    text = str(error)
    assert text == "bad (file='u'). Use group='x'."
    assert in_command(text) == "bad (file='u'). Use --group x."


def test_commands_name_the_repository_of_the_command_that_runs():
    text = write_remedy(
        "In REPO: ", write_code("icevirt.log(repo)", "icevirt log REPO"), " lists them."
    )
    assert in_command(text, repo="my repo") == "In REPO: icevirt log 'my repo' lists them."
    assert in_command(text) == "In REPO: icevirt log REPO lists them."
    path = write_code("", "icevirt log /data/REPO --group REPO/x")
    assert in_command(path, repo="mine") == "icevirt log /data/REPO --group REPO/x"


def test_texts_and_remedies_join():
    text = join("; ", ["a=1", write_option("a", 1)])
    assert (text, in_command(text)) == ("a=1; a=1", "a=1; --a 1")
    assert in_command(change(text, str.upper)) == "A=1; --A 1"
    assert isinstance(text, Remedy)


def test_a_bad_file_knows_the_variables_that_its_error_leaves_out():
    text = write_remedy("x. ", write_option("drop_variables", ["/a", "/b c"]), ", or ")
    assert BadFile(url="u", code="unsupported", error=text).impossible == ("/a", "/b c")
    assert BadFile(url="u", code="unsupported", error=str.__str__(text)).impossible == ()


FLAGS = re.compile(r" \((?:on the command line )?(?:--[a-z]|icevirt [a-z])")
ALONE = ("(--asset NAME chooses one)", "JSON (--format json)")


def texts_of(path):
    """Yield the texts of a module, whose holes are empty, except docstrings."""
    tree = ast.parse(path.read_text())
    docs = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.JoinedStr):
            parts = (getattr(part, "value", "") for part in each.values)
            yield each.lineno, "".join(part for part in parts if isinstance(part, str))
        elif (
            isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in docs
        ):
            yield each.lineno, each.value


@pytest.mark.ci
def test_no_text_of_ours_has_flags_in_parentheses():
    """They would stand there in Python, too; code has both notations."""
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for top in ("icevirt", "scanners")
        for path in (ROOT / top).rglob("*.py")
        for line, text in texts_of(path)
        if FLAGS.search(text) and path.parent.name != "cli" and path.name != "page.py"
    ]
    assert [each for each in found if not any(known in each for known in ALONE)] == []
