"""A refused command is printed again with what solves it: ready to paste, and without secrets."""

import json
import logging
import shlex
import subprocess
from dataclasses import replace

import pytest

from icevirt.api.events import Clock, telling_failures
from icevirt.display.document import document
from icevirt.display.events import JsonFormatter
from icevirt.display.fixes import build_of, commands, lines
from icevirt.errors import CombineError, DataLoss, Fix
from icevirt.planning.remedies import build_fix, fix, scan_fix
from icevirt.remedy_notation import REPOSITORY

RESERVE = fix("they read as missing", missing="reserve")


def command(made, *words):
    """Return the words of the command that one fix makes of another command."""
    (line,) = commands([made], words)
    return shlex.split(line, comments=True)[1:]


ALREADY = {
    "another value": (RESERVE, "build a b --missing refuse", "build a b --missing reserve"),
    "behind a sign": (RESERVE, "build --missing=refuse a b", "build a b --missing reserve"),
    "no value": (
        build_fix("", commit_options={"rescan_changed": True}),
        "build --no-rescan-changed a b",
        "build a b --rescan-changed",
    ),
    "dimensions": (
        fix("", concat_dim=["t"]),
        "build a --concat-dim x b --concat-dim=y",
        "build a b --concat-dim t",
    ),
    "rules of dimensions": (
        fix("", data_vars={"t": ["all"]}),
        "build a b --data-vars x --data-vars=y",
        "build a b --data-vars t:all",
    ),
    "other names in a list": (
        scan_fix("", drop_variables=["/x"]),
        "build a b --drop-variable y --drop-variable=/x",
        "build a b --drop-variable y --drop-variable /x",
    ),
    "other names in a mapping": (
        fix("", tolerance={"lat": 0.5}),
        "build a b --tolerance lat=0.1 --tolerance 1 --tolerance=lon=2",
        "build a b --tolerance 1 --tolerance=lon=2 --tolerance lat=0.5",
    ),
    "labels without a dimension": (
        fix("", labels={"m": "attribute:n"}),
        "build a b --labels regex:x=(.)",
        "build a b --labels m=attribute:n",
    ),
    "an option that goes": (
        build_fix("", without={"spacing": ""}),
        "build a b --spacing t=6h --spacing=x=1", "build a b"),
    "a name that goes": (
        build_fix("", without={"rename": "tme", "pad": "x"}, combine_options={"rename": {"time": "t"}}),
        "build a b --rename tme=t --rename u=v --pad x --pad=y",
        "build a b --rename u=v --pad=y --rename time=t"),
    "words that are no options": (RESERVE, "plan -- -a.nc", "plan --missing reserve -- -a.nc"),
    "a value with a dash": (
        fix("", concat_dim=["-t"]), "plan a --concat-dim x", "plan a --concat-dim=-t"),
    "another command": (RESERVE, "plan a.nc -o json", "plan a.nc -o json --missing reserve"),
    "a recipe and a list": (
        RESERVE, "build -f r.toml @list.txt", "build -f r.toml @list.txt --missing reserve"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "before", "after"), ALREADY.values(), ids=ALREADY)
def test_a_fix_takes_the_place_of_what_the_command_said(made, before, after):
    assert command(made, *before.split()) == after.split()


def test_a_list_on_stdin_has_to_be_given_again():
    assert commands([RESERVE], ["build", "-", "repo"]) == [
        "... | icevirt build - repo --missing reserve  # they read as missing"
    ]


def test_a_command_that_comes_first_is_reported_and_prices_stand_in_a_column():
    ways = [fix("short", first="pip install x"), fix("long", missing="reserve")]
    assert commands(ways, ["plan", "a b.nc"]) == [
        "pip install x && icevirt plan 'a b.nc'   # short",
        "icevirt plan 'a b.nc' --missing reserve  # long",
    ]


def test_what_a_recipe_says_is_not_changed_by_a_command_alone():
    def comment(made, *words):
        return commands([made], ["build", *words])[0].partition("# ")[2]

    drop, spacing = scan_fix("gone", drop_variables=["/x"]), build_fix("", without={"spacing": ""})
    replaced = "gone; it replaces what the recipe says of drop-variable"
    assert comment(drop, "-f", "r.toml") == replaced
    assert comment(drop, "--file=r.toml") == replaced
    assert comment(drop, "-f", "r.toml", "--drop-variable", "y") == "gone"
    assert comment(drop, "a.nc", "repo") == "gone"
    assert comment(spacing, "-f", "r.toml") == "; take spacing out of the recipe"
    assert comment(RESERVE, "-f", "r.toml") == "they read as missing"


# -- files -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def touched(*names):
    for name in names:
        open(name, "w").close()
    return list(names)


def test_thousands_of_files_are_the_pattern_that_the_shell_had(folder):
    files = touched(*(f"in/day_{number:05}.nc" for number in range(10_000)))
    assert command(RESERVE, "build", *files, "repo")[:3] == ["build", "in/*.nc", "repo"]
    some = ["build", *files[1000:2000], "repo"]
    assert command(RESERVE, *some)[:3] == ["build", "in/day_01*.nc", "repo"]
    assert command(RESERVE, "build", *files[1:], "repo")[:3] == ["build", "FILES...", "repo"]


def test_a_repository_may_be_called_like_the_files(folder):
    files = touched(*(f"{number}.nc" for number in range(5)))
    assert command(RESERVE, "build", *files, "out/repo.nc")[:3] == ["build", "*.nc", "out/repo.nc"]


def test_folders_have_a_pattern_each(folder):
    (folder / "out").mkdir()
    files = touched(*(f"{where}/{number}.nc" for where in ("in", "out") for number in range(5)))
    assert command(RESERVE, "build", *files, "r")[:4] == ["build", "in/*.nc", "out/*.nc", "r"]


def test_a_pattern_keeps_the_order_of_the_files(folder):
    """Patterns sort numbers as numbers, and files without a coordinate stay as they are given."""
    files = sorted(touched(*(f"in/{number}.nc" for number in range(1, 12))))
    assert command(RESERVE, "build", *files, "repo")[:3] == ["build", "FILES...", "repo"]


# -- what must not be printed ------------------------------------------------------------------------


def test_no_command_repeats_a_secret():
    words = ["build", "https://me:hunter2@host/a.nc", "https://host/b.nc?X-Signature=hunter2",
             "--publish-as=s3://me:hunter2@b=/mnt/b", "s3://me:hunter2@bucket/repo"]  # fmt: skip
    (line,) = commands([RESERVE], words)
    assert "hunter2" not in line
    assert "put the secrets of the URLs back" in line
    assert "s3://bucket/repo" in line


@pytest.mark.parametrize("name", ["a\x1b[2Jb.nc", "it's\n.nc", "\u202egpj.nc", "back\\slash\t"])
def test_a_shell_reads_the_name_that_a_terminal_must_not_obey(name):
    (line,) = commands([RESERVE], ["plan", name])
    assert line.isprintable()
    word = line.removeprefix("icevirt plan ").partition(" --missing")[0]
    said = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )  # fmt: skip
    assert said.stdout.decode() == name


# -- all of an error ---------------------------------------------------------------------------------


def test_an_error_says_what_differs_between_which_files_and_how_to_go_on(folder):
    error = CombineError(
        "the grids of variable /t differ along x",
        fixes=[
            fix("ends read as missing", pad=["x"]),
            scan_fix("/t is gone", drop_variables=["/t"]),
        ],
        do="Or build a group of each grid.",
        variable="/t",
        first=(folder / "in/a.nc").as_uri(),
        first_shape={"x": 3},
        other="s3://bucket/b\x1b.nc",
        other_shape={"x": 4},
        missing=["t=1", "t=2"],
        nothing=None,
    )
    assert lines(error, ["build", "in", "repo"]) == [
        "the grids of variable /t differ along x",
        "  first    in/a.nc   x: 3",
        "  other    s3://bucket/b\\x1b.nc   x: 4",
        "  missing  t=1, t=2",
        "fix (one of):",
        "  icevirt build in repo --pad x             # ends read as missing",
        "  icevirt build in repo --drop-variable /t  # /t is gone",
        "Or build a group of each grid.",
    ]


def test_programs_get_the_fixes_as_values():
    measured = replace(RESERVE, loss=DataLoss(variables=1, bytes=8))
    error = CombineError("no", fixes=[measured], do="Or not.", first="a.nc")
    assert json.loads(json.dumps(document(error))) == {
        "error": {"code": "combine", "what": "no", "facts": {"first": "a.nc"}, "do": "Or not."},
        "fixes": [
            {
                "python": 'combine_options={"missing": "reserve"}',
                "flags": ["--missing", "reserve"],
                "price": "they read as missing",
                "first": "",
                "command": "",
                "without": [],
                "arguments": {"combine_options": {"missing": "reserve"}},
                "loss": {"variables": 1, "files": 0, "steps": 0, "bytes": 8, "groups": 0},
                "stored": None,
            }
        ],
    }


def test_a_log_has_the_fixes_as_a_field_and_in_words_once(caplog):
    caplog.set_level(logging.ERROR, "icevirt")
    with pytest.raises(CombineError), telling_failures("build", Clock()):
        raise CombineError("no", fixes=[RESERVE])
    (record,) = caplog.records
    assert record.getMessage().count("reserve") == 1
    line = json.loads(JsonFormatter().format(record))
    assert line["fixes"] == [document(RESERVE)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("append new/a.nc repo --group /g", "build SOURCES... repo --group /g --mode w"),
        ("build a.nc repo --quiet", "build a.nc repo --quiet --mode w"),
    ],
)
def test_what_append_cannot_do_is_a_build_of_all_files(words, expected):
    """``append`` has no --mode, and a build of the new files alone would lose the others."""
    token = REPOSITORY.set("repo")
    try:
        assert command(build_fix("", mode="w"), *words.split()) == expected.split()
    finally:
        REPOSITORY.reset(token)


BUILDS = {
    "a plan": ("plan a.nc b.nc", {}, "build a.nc b.nc REPO"),
    "options of a plan alone": (
        "plan a.nc --write-recipe r.toml --report=p.html -o text -q --concat-dim t",
        {},
        "build a.nc --concat-dim t REPO",
    ),
    "a recipe": ("plan -f r.toml --missing reserve", {}, "build -f r.toml --missing reserve REPO"),
    "a repository that holds nothing": ("plan a.nc --repo new", {}, "build a.nc new"),
    "a repository that holds a dataset": (
        "plan a.nc --repo=old",
        {"replaces": True},
        "build a.nc --mode w old",
    ),
    "a dataset that becomes less": (
        "plan a.nc --repo old",
        {"replaces": True, "changes": True},
        "build a.nc --mode w --allow-changes old",
    ),
    "a file whose name begins with a dash": ("plan -- -a.nc", {}, "build -- -a.nc REPO"),
}


@pytest.mark.parametrize(("words", "held", "expected"), BUILDS.values(), ids=BUILDS.keys())
def test_the_build_of_a_plan_takes_its_options(words, held, expected):
    made = build_of(words.split(), **{"replaces": False, "changes": False} | held)
    assert shlex.split(made, comments=True) == ["icevirt", *expected.split()]
    assert ("older snapshots keep it" in made) == held.get("changes", False)


def test_the_build_of_a_plan_shows_no_secret():
    made = build_of(["plan", "https://me:secret@host/a.nc"], replaces=False, changes=False)
    assert "secret@" not in made
    assert made.endswith("# put the secrets of the URLs back")


def test_what_is_authorized_already_stays():
    made = Fix(python="", flags=("--authorize", "file:///b/"), price="")
    words = "verify repo --authorize file:///a/"
    assert command(made, *words.split()) == [*words.split(), "--authorize", "file:///b/"]
