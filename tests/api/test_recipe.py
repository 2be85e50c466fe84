"""A recipe holds what a plan or build is asked for, and says the same wherever it is run from."""

import inspect
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from icevirt import errors
from icevirt.api.commit_options import BY_KEYWORD
from icevirt.api.recipe import ARGUMENTS, toml

PAGE = Path(__file__).parents[2] / "docs" / "steps.md"


pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "archive")


def recipe(folder, text):
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


RECIPE = """version = 2
sources = "archive/*.nc"
repo = "repo"
concat_dim = "time"

[combine_options]
rename = { packed = "tas" }
attrs."/".title = "from a recipe"
attrs."/".day = {}
"""


def test_the_example_of_the_page_is_built(days, tmp_path, run, monkeypatch):
    """Each key of it is one that there is, and the build does what it says."""
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    recipe(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    assert run("plan", "-f", "recipe.toml")[0] == 0
    status, _, error = run("build", "-f", "recipe.toml", "--quiet")
    assert (status, error) == (0, "")
    found = opened(str(tmp_path / "repo"), group="ocean")
    assert "tas" in found
    assert found.attrs["title"] == "Sea surface temperature"


def test_a_recipe_says_the_same_from_anywhere(days, tmp_path, run, monkeypatch):
    path = recipe(tmp_path, RECIPE)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        status, output, _ = run("build", "-f", os.path.relpath(path), "--mode", "w", "-o", "json")
        assert status == 0
    assert json.loads(output)["already_built"]
    assert not (tmp_path / "one" / "repo").exists()
    wanted = expected_dataset(days, "time").rename(packed="tas")
    del wanted.attrs["day"]
    assert_same_dataset(opened(str(tmp_path / "repo")), wanted.assign_attrs(title="from a recipe"))


def test_python_builds_by_a_recipe(days, tmp_path):
    path = recipe(tmp_path, RECIPE)
    report = icevirt.build(**icevirt.load_recipe(path))
    assert report.repo == (tmp_path / "repo").as_uri()
    planned = icevirt.plan(**icevirt.load_recipe(path, call="plan"))
    assert planned.difference.changes == ()


def test_options_count_more_than_the_recipe(days, tmp_path, run):
    path = recipe(tmp_path, RECIPE)
    status, output, _ = run(
        *("build", "-f", path, days[0], tmp_path / "other", "--rename", "packed=pr", "-o", "json")
    )
    assert status == 0
    report = json.loads(output)
    assert report["repo"] == (tmp_path / "other").as_uri()
    assert report["files_scanned"] == 1
    assert "/pr" in [array["path"] for array in report["arrays"]]


def test_a_plan_writes_the_recipe_of_what_it_planned(days, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["archive/day*.nc", "--concat-dim", "time", "--rename", "packed=tas", "--attr", "/:n=3"]
    more = ["--attr", "/:day=null", "--max-bad-files", "1%", "--pad", "x"]
    assert run("plan", *words, *more, "--write-recipe", "made.toml", "--quiet")[0] == 0
    assert tomllib.loads(Path("made.toml").read_text()) == {
        "version": 2,
        "sources": ["archive/day*.nc"],
        "concat_dim": ["time"],
        "scan_options": {"max_bad_files": "1%"},
        "combine_options": {
            "pad": ["x"],
            "rename": {"packed": "tas"},
            "attrs": {"/": {"n": 3, "day": {}}},
        },
    }
    _, direct, _ = run("plan", *words, *more, "-o", "json")
    _, again, _ = run("plan", "-f", "made.toml", "-o", "json")
    assert json.loads(again) == json.loads(direct)


def test_what_is_missing_is_a_wrong_command_line(tmp_path, run):
    path = recipe(tmp_path, 'version = 2\nsources = "a.nc"\n')
    for words, missing in (
        (["build", "-f", path], "REPO"),
        (["build", "repo"], "SOURCES"),
        (["plan"], "SOURCES"),
    ):
        status, _, error = run(*words)
        assert status == 2
        assert missing in error


BAD = {
    "an unknown key": ("version = 2\n\nconcatdim = 'time'\n", "'concatdim' in line 3.*concat_dim"),
    "an unknown table": ("version = 2\n[renames]\na = 'b'\n", "'renames' in line 2"),
    "an unknown option": (
        "version = 2\n[combine_options]\nmising = 'reserve'\n",
        "'mising' in line 3.*missing",
    ),
    "an option outside its table": (
        "version = 2\nmissing = 'reserve'\n",
        r"line 2.*'missing' in the table \[combine_options\]",
    ),
    "an option outside of its table": (
        "version = 2\nmissing = 'reserve'\n",
        r"line 2.*'missing' in the table \[combine_options\]",
    ),
    "a table that is none": ("version = 2\nscan_options = 3\n", "scan_options must be a table"),
    "a value that is none": (
        "version = 2\n[combine_options]\nmissing = 'fill'\n",
        "missing='fill'.*recipe.*refuse, reserve",
    ),
    "an argument of the process": ("version = 2\nspark = 'x'\n", "unknown key 'spark'"),
    "no version": ("sources = 'a.nc'\n", "version = 2"),
    "a newer version": ("version = 3\n", "version=3"),
    "no TOML": ("version = 2\nsources = [\n", "not valid TOML.*end of document"),
    "a key twice": ("version = 2\nmode = 'w'\nmode = 'w'\n", "not valid TOML.*line 3"),
    "a secret": (
        "version = 2\n[access]\n's3://b/' = 'AKIA123'\n",
        r"not contain secrets.*line 3.*s3://b/",
    ),
    "secrets in a table": (
        "version = 2\n[access.'s3://b/']\nsecret_access_key = 'AKIA123'\n",
        "not contain secrets",
    ),
    "attributes of nothing": (
        "version = 2\n[combine_options]\nattrs = { units = 'K' }\n",
        "must be a table of variables",
    ),
}


@pytest.mark.parametrize(("text", "output"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_refused_by_name_and_line(text, output, tmp_path):
    with pytest.raises(errors.InvalidInputError) as caught:
        icevirt.load_recipe(recipe(tmp_path, text))
    assert re.search(output, str(caught.value), re.DOTALL)
    assert "AKIA" not in str(caught.value)


def test_no_such_recipe_is_an_error(tmp_path):
    with pytest.raises(errors.NotFoundError, match=r"none\.toml"):
        icevirt.load_recipe(tmp_path / "none.toml")


def test_what_has_no_place_in_a_file_is_refused(tmp_path):
    for how in (
        {"combine_options": {"preprocess": len}},
        {"access": {"s3://b/": object()}},
        {"repos": "r"},
    ):
        with pytest.raises(errors.InvalidInputError):
            icevirt.dump_recipe({"sources": "a.nc", **how}, tmp_path / "recipe.toml")
    assert list(tmp_path.iterdir()) == []


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
paths = st.from_regex(r"[a-z*]{1,8}(/[a-z*]{1,8}){0,2}/?", fullmatch=True)
places = paths | paths.map("/abs/{}".format) | paths.map("s3://bucket/{}".format)
names = texts.filter(bool)
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
finite = scalars.filter(lambda value: value not in (float("inf"), -float("inf")))
shares = st.integers(1, 9) | st.just("1%")
plain = names.filter(lambda text: "{" not in text)  # else it would be a pattern of names
labels = (
    plain
    | st.just("{member}_{time:%Y%m}.nc")
    | st.lists(scalars, min_size=1)
    | st.lists(st.datetimes(), min_size=1)
    | st.dictionaries(names, plain, min_size=1)
)
edits = st.dictionaries(
    names,
    st.dictionaries(names, st.none() | scalars | st.lists(scalars), min_size=1),
    min_size=1,
)
OPTIONS = {
    "scan_options": {
        "max_bad_files": shares,
        "file_timeout": st.floats(0.1, 100),
        "file_memory": st.just("1GiB") | st.integers(1, 1 << 40),
        "source_group": names.filter(lambda name: name != "/"),
        "drop_variables": st.lists(names, min_size=1),
        "variable_policy": st.dictionaries(names, st.sampled_from(["skip", "native"]), min_size=1),
        "asset": names,
    },
    "combine_options": {
        "labels": labels,
        "missing": st.just("reserve"),
        "on_mismatch": st.sampled_from(["native", "eras"]),
        "spacing": st.just("6h") | st.dictionaries(names, st.just("1D"), min_size=1),
        "data_vars": st.just("all") | st.dictionaries(names, st.just(["a"]), min_size=1),
        "tolerance": st.floats(0, 9) | st.dictionaries(names, st.floats(0, 9), min_size=1),
        "rename": st.dictionaries(names, names, min_size=1),
        "attrs": edits,
        "preprocess": st.just("package.module:function"),
        "max_native_bytes": st.integers(0, 9),
    },
    "commit_options": {
        "message": names,
        "metadata": st.dictionaries(texts, finite | st.lists(finite), min_size=1),
        "publish_as": st.dictionaries(places, places, min_size=1),
        "allow_changes": st.just(True),
        "verify": st.integers(0, 9),
    },
}
arguments = st.fixed_dictionaries(
    {"sources": st.lists(places | places.map("@{}".format), min_size=1)},
    optional={
        "repo": places,
        "concat_dim": names | st.lists(names, min_size=1),
        "access": st.dictionaries(places, st.just("anonymous"), min_size=1),
        **{
            keyword: st.fixed_dictionaries({}, optional=options).filter(bool)
            for keyword, options in OPTIONS.items()
        },
    },
)


@pytest.mark.ci
@given(arguments)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_objects_and_mappings_are_the_same_recipe(tmp_path, asked):
    path, other = tmp_path / "recipe.toml", tmp_path / "other.toml"
    icevirt.dump_recipe(asked, path)
    made = {key: BY_KEYWORD[key].of(asked[key]) for key in asked.keys() & OPTIONS.keys()}
    icevirt.dump_recipe({**asked, **made}, other)
    assert icevirt.load_recipe(other) == icevirt.load_recipe(path)


@given(arguments)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_reads_back(tmp_path, asked):
    """Whatever the texts; paths are those of the process that wrote them."""
    path = tmp_path / "recipe.toml"
    icevirt.dump_recipe(asked, path)
    found = icevirt.load_recipe(path)
    icevirt.dump_recipe(found, path)
    assert icevirt.load_recipe(path) == found
    assert found.keys() == asked.keys()
    for key in found.keys() - {"sources", "repo", "access", *OPTIONS}:
        assert found[key] == asked[key]
    for key in found.keys() & OPTIONS.keys():
        assert found[key].keys() == asked[key].keys()
        for name in found[key].keys() - {"publish_as"}:
            assert found[key][name] == asked[key][name]
    assert found["sources"] == [_absolute(each) for each in asked["sources"]]


def _absolute(path):
    mark, bare = ("@", path[1:]) if path.startswith("@") else ("", path)
    return path if "://" in bare else mark + os.path.join(os.getcwd(), bare)


@given(st.dictionaries(names, scalars | st.lists(scalars) | st.dictionaries(texts, scalars)))
def test_toml_says_what_it_was_given(document):
    assert tomllib.loads(toml(document)) == document


@pytest.mark.parametrize("call", ["build", "plan"])
def test_a_recipe_may_hold_all_that_a_call_takes(call):
    """But what runs tasks and what is told of them, which no file can hold, and questions of a plan."""
    taken = inspect.signature(getattr(icevirt, call)).parameters.keys()
    assert taken - {"executor", "progress", "twin_chunks"} == ARGUMENTS[call]
