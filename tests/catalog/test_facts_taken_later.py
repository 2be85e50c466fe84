"""A scan, and builds of it that need facts which it did not take: by command, killed, at once."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import icevirt
from catalog import taking
from catalog.ways import content, count_opens, write
from icevirt.scan import registry
from icevirt.tasks import forkserver

TIME = ("--concat-dim", "time")
WAYS = {
    "inferred": ((), {}, 0),
    "time": (TIME, {"concat_dim": "time"}, 0),
    "renamed": (
        ("--concat-dim", "step", "--rename", "time=step"),
        {"concat_dim": "step", "combine_options": {"rename": {"time": "step"}}},
        0,
    ),
    "tolerant": (
        (*TIME, "--tolerance", "mask=1"),
        {"concat_dim": "time", "combine_options": {"tolerance": {"mask": 1.0}}},
        1,
    ),
}
"""Words of a build, its arguments, and how often it opens each file of a scan without options."""


@pytest.fixture
def files(tmp_path):
    """Write three files whose lengths differ."""
    folder = tmp_path / "archive"
    folder.mkdir()
    return [
        write(folder / f"t{at}.nc", 0, first, steps, kind="NETCDF4")
        for at, (first, steps) in enumerate(((0, 3), (3, 4), (7, 2)))
    ]


@pytest.fixture
def scanned(files, tmp_path):
    """Scan files one by one, so that nothing is inferred and no fact of a dimension taken."""
    for file in files:
        icevirt.scan_files([file], str(tmp_path / "catalog"), executor="in-process")
    return str(tmp_path / "catalog")


def run_apart(*given):
    """Build from a catalog alone in a process of its own; return its exit code."""
    child = forkserver.Child("catalog.taking")
    with suppress(EOFError):  # it was killed
        child.ask(240, taking.take, *given)
    return child.end()


def test_commands_build_one_scan_in_several_ways(files, tmp_path, run, monkeypatch, in_process):
    """Without sources, and without options of the scan."""
    opens, catalog = count_opens(monkeypatch), tmp_path / "catalog"
    assert run("scan", tmp_path / "archive", "--catalog", catalog, "--quiet")[0] == 0
    assert opens == {"t0.nc": 1, "t1.nc": 1, "t2.nc": 1}
    for number, (words, options, most) in enumerate(WAYS.values()):
        opens.clear()
        repo = tmp_path / f"command-{number}"
        status, output, error = run("build", "--catalog", catalog, repo, *words, "-o", "json", "-q")
        assert status == 0, error
        assert json.loads(output)["files_scanned"] == 0
        assert opens == ({file.rsplit("/", 1)[-1]: most for file in files} if most else {}), words
        icevirt.build(files, str(tmp_path / f"scratch-{number}"), **options)
        assert content(str(repo)) == content(str(tmp_path / f"scratch-{number}")), words


@pytest.mark.ci
def test_a_first_file_that_ends_its_process_does_not_hide_the_dimensions(
    files, tmp_path, stub_site, monkeypatch
):
    """All files are scanned without hints then, and the catalog says what differs."""
    monkeypatch.syspath_prepend(stub_site)
    registry.scanners.cache_clear()
    bad = tmp_path / "bad.stub"
    bad.write_text("STUB crash")
    made = icevirt.plan([str(bad), *files], executor="processes", scan_options={"max_bad_files": 1})
    registry.scanners.cache_clear()
    assert made.concat_dim == ("time",)
    assert [file.code for file in made.bad_files] == ["crashed"]


@pytest.mark.ci
@pytest.mark.parametrize("moment", ["first facts", "plan", "commit"])
def test_a_build_that_is_killed_after_it_took_facts_is_finished(
    files, scanned, tmp_path, monkeypatch, in_process, moment
):
    """Facts that were taken count; the others are taken by the next build."""
    repo, options = tmp_path / "repo", WAYS["tolerant"][1]
    assert run_apart(scanned, str(repo), moment, options) == -signal.SIGKILL
    taken = len(os.listdir(f"{scanned}/more"))
    assert taken == (1 if moment == "first facts" else 3)
    opens = count_opens(monkeypatch)
    assert icevirt.build(None, str(repo), catalog=scanned, **options).files_scanned == 0
    assert sum(opens.values()) == 3 - taken
    icevirt.build(files, str(tmp_path / "scratch"), **options)
    assert content(str(repo)) == content(str(tmp_path / "scratch"))
    assert icevirt.verify(
        str(repo), full=True, authorize_virtual_chunk_access=[(tmp_path / "archive").as_uri() + "/"]
    ).ok


@pytest.mark.ci
@pytest.mark.parametrize("other", ["time", "tolerant"])
def test_two_processes_take_facts_at_the_same_time(files, scanned, tmp_path, monkeypatch, other):
    """Both find that the same facts are lacking before either has taken one."""
    ways = {"a": WAYS["time"][1], "b": WAYS[other][1]}
    with ThreadPoolExecutor(len(ways)) as pool:
        codes = pool.map(
            lambda name: run_apart(scanned, str(tmp_path / name), "meeting", ways[name]), ways
        )
        assert [*codes] == [0, 0]
    opens = count_opens(monkeypatch)
    for name, options in ways.items():
        icevirt.plan(None, catalog=scanned, executor="in-process", **options)
        icevirt.build(files, str(tmp_path / f"{name}-scratch"), executor="in-process", **options)
        assert content(str(tmp_path / name)) == content(str(tmp_path / f"{name}-scratch"))
    assert max(opens.values()) == len(ways), "by the builds from scratch alone"
