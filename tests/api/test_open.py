"""One's own datasets open without naming the prefixes of their files; others' do not."""

import os
import shutil
import traceback

import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, write_days
from icevirt.display.report import opening
from icevirt.errors import InvalidInputError, UnauthorizedError
from icevirt.repo.made_here import identify, read_containers


@pytest.fixture
def built(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ICEVIRT_REMEMBER", raising=False)
    days = write_days(tmp_path / "in", 2)
    icevirt.build(days, tmp_path / "repo", concat_dim="time", executor="in-process")
    return days


def test_a_dataset_of_ones_own_opens(built, tmp_path):
    with icevirt.open(tmp_path / "repo") as dataset:
        assert_same_dataset(dataset, expected_dataset(built, "time"))
    with (
        icevirt.open(tmp_path / "repo", authorize_virtual_chunk_access=[]) as closed,
        pytest.raises(UnauthorizedError),
    ):
        closed.load()


def test_a_dataset_that_came_from_elsewhere_authorizes_nothing(built, tmp_path, monkeypatch):
    shutil.copytree(tmp_path / "repo", tmp_path / "copy")
    for repo, home in (("copy", "state"), ("repo", "another")):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / home))
        with pytest.raises(UnauthorizedError):
            icevirt.open(tmp_path / repo)


def test_recorded_stands_for_the_prefixes_of_ones_own_builds(built, tmp_path, run):
    status, _, error = run("verify", tmp_path / "repo", "--authorize", "recorded", "-q", *HERE)
    assert (status, error) == (0, f"authorized: {(tmp_path / 'in').as_uri()}/\n")
    shutil.move(tmp_path / "repo", tmp_path / "moved")
    status, _, error = run("verify", tmp_path / "moved", "--authorize", "recorded", *HERE)
    assert status == 2
    assert "nothing is recorded" in error


IN_PROCESS = {"executor": "in-process"}
HERE = ("--executor", "in-process")
VALUES = "authorize_virtual_chunk_access"
CALLS = {
    "icevirt.open": (VALUES, lambda repo, **given: icevirt.open(repo, **given).load()),
    "the engine": (
        VALUES,
        lambda repo, **given: xr.open_dataset(repo, engine="icevirt", **given).load(),
    ),
    "verify": (VALUES, lambda repo, **given: icevirt.verify(repo, **IN_PROCESS, **given)),
    "materialize": (
        VALUES,
        lambda repo, **given: icevirt.materialize(
            repo, "packed", chunks={"time": 2}, **IN_PROCESS, **given
        ),
    ),
    "relocate": (
        VALUES,
        lambda repo, **given: icevirt.relocate(
            repo, "files", repo.parent / "elsewhere", **IN_PROCESS, **given
        ),
    ),
    "update": ("authorize", lambda repo, **given: icevirt.update(repo, **IN_PROCESS, **given)),
}


def build_named(folder):
    """Build a repository of two days, whose container has a name: a name authorizes no place."""
    icevirt.build(
        write_days(folder / "in", 2) and str(folder / "in"),
        folder / "repo",
        concat_dim="time",
        commit_options={"containers": {"files": str(folder / "in")}},
        executor="in-process",
    )
    return folder / "repo"


@pytest.mark.parametrize(("_", "call"), CALLS.values(), ids=CALLS.keys())
def test_what_this_user_built_needs_no_prefix(tmp_path, _, call):
    """One rule for every call that reads files."""
    repo = build_named(tmp_path)
    shutil.copytree(tmp_path / "in", tmp_path / "elsewhere")
    call(repo)


def test_what_this_user_appended_needs_no_prefix(tmp_path, in_process):
    """The first files, and those of other directories."""
    repo = tmp_path / "repo"
    _, second, third = write_days(tmp_path / "in")
    for path, folder in ((second, "more"), (third, "late")):
        (tmp_path / folder).mkdir()
        shutil.move(path, tmp_path / folder)
    icevirt.append(tmp_path / "in", repo, concat_dim="time")
    for folder, steps in (("more", 8), ("late", 12)):
        icevirt.append(tmp_path / folder, repo)
        with xr.open_dataset(repo, engine="icevirt") as ours:
            assert ours["packed"].load().sizes["time"] == steps


def append_first(days, repo):
    icevirt.append(days[:1], repo, concat_dim="time")
    return lambda: icevirt.append(days[1], repo)


def build_first(days, repo):
    archive, last = os.path.dirname(days[0]), repo.with_name("last.nc")
    os.rename(days[-1], last)
    icevirt.build(archive, repo, concat_dim="time")
    os.rename(last, days[-1])
    return lambda: icevirt.update(repo)


@pytest.mark.parametrize("start", [append_first, build_first], ids=["append", "update"])
def test_a_wide_container_of_another_writer_is_not_made_ones_own(tmp_path, in_process, start):
    """The repository is shared: others may change its configuration between two commits."""
    repo, days = tmp_path / "repo", write_days(tmp_path / "in")
    grow = start(days, repo)
    opened = icevirt.Repository.open(repo)
    config = opened.config
    store = icevirt.local_filesystem_store(str(tmp_path))
    for place in (tmp_path, tmp_path / "private"):
        config.set_virtual_chunk_container(
            icevirt.VirtualChunkContainer(f"{place.as_uri()}/", store)
        )
    icevirt.Repository.open(repo, config).save_config()
    grow()
    own = read_containers(identify(opened.storage))
    assert own == (f"{(tmp_path / 'in').as_uri()}/",)


@pytest.fixture(scope="module")
def without_files(tmp_path_factory):
    """A repository of somebody else, whose files no call could read."""
    folder = tmp_path_factory.mktemp("foreign")
    build_named(folder).rename(folder / "copy")
    (folder / "in").rename(folder / "away")
    return folder / "copy"


ASKED = {"a foreign repository": None, "a wrong prefix": ["inn"]}


@pytest.mark.parametrize("names", ASKED.values(), ids=ASKED.keys())
@pytest.mark.parametrize(("word", "call"), CALLS.values(), ids=CALLS.keys())
def test_what_is_new_or_wrong_is_asked_before_any_work(without_files, word, call, names):
    """The place is named; no file is looked at, and nothing is written."""
    there = {path: path.stat().st_mtime_ns for path in without_files.rglob("*")}
    given = {} if names is None else {word: [without_files.parent / each for each in names]}
    with pytest.raises(InvalidInputError) as caught:
        call(without_files, **given)
    is_recipe = word == "authorize" and names is None  # which is not run, wherever files lie
    assert is_recipe or isinstance(caught.value, UnauthorizedError)
    assert (without_files.parent / "in").as_uri() in str(caught.value).replace("'/", "'file:///")
    assert there == {path: path.stat().st_mtime_ns for path in without_files.rglob("*")}


SHOWN = {
    "icevirt.open": ("icevirt.open(repo)", 7),
    "the engine": ("xr.open_dataset(repo, engine='icevirt')['packed'].values", 12),
    "dask": ("xr.open_dataset(repo, engine='icevirt', chunks={}).mean().compute()", 12),
    "a tree": ("xr.open_datatree(repo, engine='icevirt')", 15),
}


@pytest.mark.parametrize(("code", "most"), SHOWN.values(), ids=SHOWN.keys())
def test_what_a_reader_sees_of_a_missing_authorization_fits_on_a_screen(without_files, code, most):
    """At the line that lacks it, and not at the first value."""
    with pytest.raises(UnauthorizedError) as caught:
        exec(compile(code, "<user>", "exec"), {"icevirt": icevirt, "xr": xr, "repo": without_files})
    shown = traceback.format_exception(caught.value.with_traceback(caught.tb.tb_next))
    assert len("".join(shown).splitlines()) <= most


def test_names_and_attributes_are_shown_to_those_who_authorize_nothing(without_files):
    with icevirt.open(without_files, authorize_virtual_chunk_access=[]) as shown:
        assert shown["packed"].attrs["units"]
    with xr.open_dataset(
        without_files, engine="icevirt", drop_variables=["packed", "mask"]
    ) as some:
        assert "packed" not in some


def test_a_refusal_is_ready_to_paste(built, tmp_path, run, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
    status, _, error = run("verify", tmp_path / "repo")
    assert status == 1
    assert f"--authorize {(tmp_path / 'in').as_uri()}/" in error
    with pytest.raises(UnauthorizedError) as refused:
        icevirt.verify(tmp_path / "repo", executor="in-process")
    assert f'authorize_virtual_chunk_access=["{(tmp_path / "in").as_uri()}/"]' in str(refused.value)
    assert "--authorize" not in str(refused.value)
    with xr.open_dataset(
        tmp_path / "repo", engine="icevirt", authorize_virtual_chunk_access=[tmp_path.as_uri()]
    ) as dataset:
        assert_same_dataset(dataset, expected_dataset(built, "time"))


# -- groups alone ----------------------------------------------------------------------------------


def grouped_files(folder, groups, *, root=False):
    """Write two days whose variables lie in groups."""
    folder.mkdir(exist_ok=True)
    paths = []
    for day in range(2):
        paths.append(str(folder / f"{day}.nc"))
        for number, name in enumerate((*groups, *(["/"] if root else []))):
            xr.Dataset(
                {"t": ("time", [float(day + number)])},
                {"time": ("time", [day], {"units": "days since 2020-01-01"})},
            ).to_netcdf(paths[-1], group=name, mode="a" if number else "w")
    return paths


def pasted(text):
    """Return what lines open that somebody pastes."""
    names = {}
    before, _, last = text.rpartition("xr.open_")
    exec(before, names)
    return eval(f"xr.open_{last}", names)


GROUPS = {
    "one group": (["a"], "/", {"/a"}),
    "two groups": (["a", "b"], "/", {"/a", "/b"}),
    "groups in groups": (["a/x", "a/y"], "/", {"/a/x", "/a/y"}),
    "into a group": (["a", "b"], "/here", {"/a", "/b"}),
}


@pytest.mark.parametrize(("groups", "into", "wanted"), GROUPS.values(), ids=GROUPS)
def test_a_repository_of_groups_opens_as_their_tree(tmp_path, monkeypatch, groups, into, wanted):
    """By the report, by its text, by that of info, and by the repository."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    repo = str(tmp_path / "repo")
    files = grouped_files(tmp_path / "in", groups)
    report = icevirt.build(files, repo, group=into, concat_dim="time", executor="in-process")
    assert report.is_tree
    text = opening(report)
    shown = sorted(each.path.removesuffix("/t") for each in report.arrays if each.path[-2:] == "/t")
    assert text.startswith(f"import xarray as xr\n# {', '.join(shown)}\nxr.open_datatree(")
    opened = {
        "report": report.open(),
        "text": pasted(text),
        "repository": icevirt.open(repo, group=into),
        "again": icevirt.build(
            files, repo, group=into, concat_dim="time", executor="in-process"
        ).open(),
    }
    for how, tree in opened.items():
        held = {node.path for node in tree.subtree if "t" in node.variables}
        assert held == wanted, how
        for name in wanted:
            expected = [
                float(xr.open_dataset(file, group=name.strip("/")).t.values[0]) for file in files
            ]
            assert tree[name].t.values.tolist() == expected, how
    assert icevirt.open(repo, group=f"{into.rstrip('/')}/{groups[0]}").t.sizes == {"time": 2}
    assert report.open(group=f"{into.rstrip('/')}/{groups[0]}").t.sizes == {"time": 2}


def test_a_group_with_variables_opens_as_a_dataset(tmp_path, monkeypatch):
    """Also where there are groups below it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    repo = str(tmp_path / "repo")
    files = grouped_files(tmp_path / "in", ["a"], root=True)
    report = icevirt.build(files, repo, concat_dim="time", executor="in-process")
    assert not report.is_tree
    for found in (report.open(), icevirt.open(repo), pasted(opening(report))):
        assert isinstance(found, xr.Dataset)
        assert found.t.values.tolist() == [1, 2]


def test_groups_that_xarray_cannot_show_as_one_tree_are_named(tmp_path, monkeypatch):
    """A group below has a dimension of the name of one above, of another length."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path, repo = tmp_path / "a.nc", str(tmp_path / "repo")
    xr.Dataset({"t": ("y", [1.0, 2.0])}).to_netcdf(path, group="a")
    xr.Dataset({"t": ("y", [1.0])}).to_netcdf(path, group="a/b", mode="a")
    icevirt.build(path, repo, executor="in-process")
    with pytest.raises(InvalidInputError, match="as one tree: group '/a/b' is not") as caught:
        icevirt.open(repo)
    assert caught.value.facts["groups"] == ["/a", "/a/b"]
    assert icevirt.open(repo, group="a/b").t.values.tolist() == [1]
