"""Options in remedies paste: into `icevirt.build`, and as flags that the command line knows."""

import inspect
import pickle
import shlex

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import icevirt
from icevirt.api.commit_options import OBJECTS
from icevirt.archive.options import declare
from icevirt.cli import main
from icevirt.cli.functions import group_options
from icevirt.errors import CombineError
from icevirt.planning.combine.options import CombineOptions
from icevirt.planning.remedies import build_fix, choose, fix, leave_out, scan_fix, together
from icevirt.remedy_notation import list_code
from icevirt.scan.options import ScanOptions

CHOSEN = {
    "a word": ({"missing": "reserve"}, ["--missing", "reserve"]),
    "a repeated option": ({"float_variables": ["/a", "b c"]}, ["--float-variable", "b c"]),
    "by dimension": ({"data_vars": {"t": ["all", "é"]}}, ["--data-vars", "t:é"]),
}


@pytest.mark.parametrize(("options", "last"), CHOSEN.values(), ids=CHOSEN)
def test_what_is_chosen_is_a_keyword_of_build_and_flags(options, last):
    (code,) = list_code(choose(**options))
    keyword, flags = code.python, code.command
    given = {}
    exec(keyword, given)
    assert CombineOptions.of(given["combine_options"]) == CombineOptions(**options)
    words = shlex.split(flags)
    assert words[-2:] == last
    (option,) = (each for each in declare(CombineOptions) if each.name in options)
    assert words[0] == option.flag


def test_variables_that_are_left_out_are_an_option_of_the_scan():
    (code,) = list_code(leave_out("/x", "/y z"))
    keyword, flags = code.python, code.command
    given = {}
    exec(keyword, given)
    assert ScanOptions.of(given["scan_options"]).drop_variables == ("/x", "/y z")
    assert shlex.split(flags) == "--drop-variable|/x|--drop-variable|/y z".split("|")


# -- a fix says the same to Python and to a shell ------------------------------------------------

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="=:,"),
    min_size=1,
    max_size=8,
)
DIMENSIONS = NAMES.filter(lambda name: name[0] not in "/*")
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.floats(0, 1e12) | st.integers(0, 1 << 40)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False)
)
WORDS = st.sampled_from(["all", "minimal"]) | NAMES.filter(lambda name: name != "different")
COMBINE = st.fixed_dictionaries(
    {},
    optional={
        "missing": st.just("reserve"),
        "duplicates": st.sampled_from(["newest", "version", "first", "last"]),
        "on_mismatch": st.sampled_from(["native", "eras"]),
        "combine_attrs": st.sampled_from(["drop_conflicts", "drop"]),
        "chunk_grid": st.just("rectilinear"),
        "max_native_bytes": st.integers(0, 1 << 50),
        "data_vars": st.lists(WORDS, min_size=1, max_size=3)
        | st.dictionaries(DIMENSIONS, st.lists(WORDS, min_size=1, max_size=3), min_size=1, max_size=3),
        "labels": st.dictionaries(
            DIMENSIONS,
            st.sampled_from(["regex:_m([0-9]+)=\\.nc", "attribute:realization", "variable:/a b"])
            | st.lists(NAMES, min_size=2, max_size=3),
            min_size=1, max_size=2,
        ),
        "pad": st.lists(NAMES, min_size=1, max_size=3),
        "float_variables": st.lists(NAMES, min_size=1, max_size=3),
        "spacing": st.dictionaries(DIMENSIONS, st.sampled_from(["6h", "1D"]), min_size=1, max_size=2),
        "tolerance": st.dictionaries(st.just("*") | NAMES, NUMBERS, min_size=1, max_size=3),
        "rename": st.dictionaries(NAMES, NAMES, min_size=1, max_size=3),
        "attrs": st.dictionaries(
            NAMES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=2), min_size=1, max_size=2
        ),
    },
)  # fmt: skip
SCAN = st.fixed_dictionaries(
    {},
    optional={
        "drop_variables": st.lists(NAMES, min_size=1, max_size=3),
        "variable_policy": st.dictionaries(
            st.just("*") | NAMES, st.sampled_from(["skip", "native"]), min_size=1, max_size=2
        ),
        "max_bad_files": st.integers(1, 1000) | st.just("1%"),
        "source_group": st.just("/a b"),
    },
)
COMMIT = st.fixed_dictionaries(
    {},
    optional={
        "allow_changes": st.just(True),
        "rescan_changed": st.just(True),
        "branch": NAMES,
        "verify": st.integers(0, 9),
    },
)


@pytest.fixture(scope="module")
def parsed():
    """Return what reads the words of a command, as keyword arguments of `icevirt.build`."""
    program = typer.main.get_command(main.app)
    command = program.get_command(None, "build")
    own = inspect.signature(icevirt.build).parameters

    def read(words):
        ctx = command.make_context("build", ["in", "repo", *words])
        options = {each.name for kind in OBJECTS for each in declare(kind)}
        said = {
            name: value
            for name, value in ctx.params.items()
            if ctx.get_parameter_source(name).name == "COMMANDLINE"
        }
        found = group_options(OBJECTS, {k: v for k, v in said.items() if k in options})
        rest = {k: v for k, v in said.items() if k in own and k not in ("sources", "repo")}
        return found | rest

    return read


def objects(arguments):
    """Return arguments with options as objects, whatever notation they came in."""
    made = {name: str(getattr(value, "value", value)) if name == "mode" else value
            for name, value in arguments.items()}  # fmt: skip
    return made | {
        each.KEYWORD: each.of(made[each.KEYWORD]) for each in OBJECTS if each.KEYWORD in made
    }


@given(
    combine=COMBINE,
    scan=SCAN,
    commit=COMMIT,
    concat_dim=st.lists(DIMENSIONS, max_size=2),
    mode=st.sampled_from([{}, {"mode": "w"}]),
)
def test_a_fix_says_the_same_to_python_and_to_a_shell(
    parsed, combine, scan, commit, concat_dim, mode
):
    named = {"concat_dim": concat_dim} if concat_dim else {}
    made = build_fix("free", **named, **mode, combine_options=combine, scan_options=scan,
                     commit_options=commit)  # fmt: skip
    python = eval(f"dict({made.python})")
    assert objects(python) == objects(parsed(shlex.split(shlex.join(made.flags))))
    assert python == {
        **named,
        **{k: v for k, v in {"combine_options": combine, "scan_options": scan}.items() if v},
        **({"commit_options": commit} if commit else {}),
        **mode,
    }


def test_numbers_texts_and_constants_are_written_as_python_writes_them():
    made = fix("", attrs={"t": {"units": None, "flag": True, "n": 1.5}}, tolerance={"*": 1e-6})
    assert made.python == (
        'combine_options={"attrs": {"t": {"units": None, "flag": True, "n": 1.5}},'
        ' "tolerance": {"*": 1e-06}}'
    )
    assert made.flags == ("--attr", "t:units=null", "--attr", "t:flag=true", "--attr", "t:n=1.5",
                          "--tolerance", "1e-06")  # fmt: skip
    assert build_fix("", commit_options={"rescan_changed": False}).flags == ("--no-rescan-changed",)


def test_a_fix_survives_the_way_from_a_task_to_the_driver():
    ways = [scan_fix("x is gone", first="pip install a", drop_variables=["/x"]), fix("y", pad="z")]
    error = CombineError("they differ", do="Or not.", fixes=ways, first="a.nc")
    again = pickle.loads(pickle.dumps(error))
    assert again.fixes == tuple(ways)
    assert str(again) == str(error)


SECRET = "https://me:hunter2@host/a.nc?sig=hunter2"


def test_no_fix_tells_a_secret():
    made = build_fix(
        f"reads {SECRET}",
        first=f"curl {SECRET}",
        scan_options={"allow_references_to": [SECRET]},
        commit_options={"publish_as": {SECRET: SECRET}},
    )
    error = CombineError("no", fixes=[made])
    for text in (repr(made), str(made), str(error), repr(pickle.dumps(error))):
        assert "hunter2" not in text
        assert "host" in text


def test_a_message_for_python_names_the_arguments_the_price_and_what_else_is_possible():
    error = CombineError(
        "they differ",
        fixes=[fix("stores 31 MB", on_mismatch="native"), scan_fix("pr is gone", drop_variables=["pr"])],
        do="Or repair the files.",
        first="a.nc",
    )  # fmt: skip
    assert str(error) == (
        'they differ (first=\'a.nc\'). Pass combine_options={"on_mismatch": "native"}'
        ': stores 31 MB; or pass scan_options={"drop_variables": ["pr"]}'
        ": pr is gone. Or repair the files."
    )
    less = build_fix("2 steps", without={"spacing": "", "pad": "x y"})
    assert str(less) == "leave out spacing, 'x y' of pad: 2 steps"
    first = CombineError("no", fixes=[fix("it reads BLOSC", first="pip install hdf5plugin")])
    assert str(first) == "no. Run pip install hdf5plugin: it reads BLOSC"


def test_two_fixes_together_say_nothing_of_variables_that_one_leaves_out():
    one = fix("x", data_vars={"time": ["mask", "orbit"], "z": ["mask"]}, tolerance={"/mask": 1e-3})
    both = together(one, scan_fix("y", drop_variables=["/mask"]))
    assert both.arguments == {
        "combine_options": {"data_vars": {"time": ["orbit"]}},
        "scan_options": {"drop_variables": ["/mask"]},
    }
    gone = together(fix("x", data_vars=["mask"]), scan_fix("y", drop_variables=["/mask"]))
    assert gone.arguments == {"scan_options": {"drop_variables": ["/mask"]}}
    other = together(fix("x", data_vars=["/a/mask"]), scan_fix("y", drop_variables=["/b/mask"]))
    assert other.arguments["combine_options"] == {"data_vars": ["/a/mask"]}
