"""One scan serves every way of combining: each build equals one that scans for itself."""

from collections import Counter

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import icevirt
from builds.support import closed_of
from catalog.ways import content, count_opens, write
from icevirt.api.dataset import scanning
from icevirt.archive.joining import Fact
from icevirt.archive.schema import ArraySchema
from icevirt.catalog.facts_beside import read_beside
from icevirt.catalog.parts import complete_parts
from icevirt.errors import CombineError, InvalidInputError, SourcesChangedError
from icevirt.storage.constructors import storage_of
from icevirt.storage.local import LocalStorage
from icevirt.tasks import scan as scan_tasks
from long_forms import IS_LONG

FORMATS = ("NETCDF4", "NETCDF3_64BIT_OFFSET")


pytestmark = pytest.mark.usefixtures("in_process")


def build(sources, repo, *, concat_dim=None, catalog=None, mode="w-", **combine):
    return icevirt.build(
        sources, repo, concat_dim=concat_dim, catalog=catalog, mode=mode, combine_options=combine
    )


def plan(sources, *, catalog, concat_dim=None, **combine):
    return icevirt.plan(sources, catalog=catalog, concat_dim=concat_dim, combine_options=combine)


@pytest.fixture
def opens(monkeypatch):
    """Count how often this process opens each source file."""
    return count_opens(monkeypatch)


@pytest.fixture(
    params=[FORMATS[0], *(pytest.param(each, marks=pytest.mark.ci) for each in FORMATS[1:])]
)
def archive(request, tmp_path):
    """Two members of three files each, whose lengths differ, and two files of other grids."""
    folder = tmp_path / "archive"
    folder.mkdir()
    return [
        [
            write(folder / f"m{member}t{at}.nc", member, first, steps, kind=request.param)
            for at, (first, steps) in enumerate(((0, 3), (3, 4), (7, 2)))
        ]
        for member in (0, 1)
    ] + [
        [
            write(folder / f"p{member}.nc", member, 0, 2, kind=request.param, nx=20 - member)
            for member in (0, 1)
        ]
    ]


WAYS_ALONG_TIME = (
    {},
    {"combine": "nested"},
    {"missing": "reserve"},
    {"duplicates": "first"},
    {"rename": {"v": "w"}},
)


def ways(archive):
    """Return sources and options of some ways of combining."""
    flat = [*archive[0], *archive[1]]
    both = {"concat_dim": ["member", "time"]}
    return {
        "time": (archive[0], {"concat_dim": "time"}),
        "inferred": (archive[0], {}),
        "labels in files": (flat, {**both, "labels": {"member": "variable:member"}}),
        "labels in names": (
            flat,
            {"concat_dim": ["run", "time"], "labels": {"run": r"regex:m(\d)t"}},
        ),
        "padded": (
            archive[2],
            {"concat_dim": "member", "labels": "variable:member", "pad": "x"},
        ),
        "renamed": (archive[0], {"concat_dim": "step", "rename": {"time": "step", "y": "lat"}}),
        "nested": (archive[:2], {"concat_dim": ["run", "time"], "combine": "nested"}),
        "tolerant": (archive[0], {"concat_dim": "time", "tolerance": 0.5}),
        "tolerant mask": (archive[0], {"concat_dim": "time", "tolerance": {"mask": 1.0}}),
        "dimensions for all": (
            flat,
            {**both, "labels": {"member": "variable:member"}, "data_vars": "all"},
        ),
        "along x": ([archive[0][0]], {"concat_dim": "x"}),
        "single": ([archive[0][0]], {}),
    }


@pytest.mark.ci
def test_each_way_equals_a_build_from_scratch(archive, tmp_path, opens):
    """A scan without hints; its first file is bad, so that nothing can be inferred from it."""
    bad = tmp_path / "archive" / "bad.nc"
    bad.write_bytes(b"nothing")
    flat = [file for files in archive for file in files]
    catalog = str(tmp_path / "catalog")
    report = icevirt.scan_files([str(bad), *flat], catalog, scan_options={"max_bad_files": 1})
    assert len(report.bad_files) == 1
    assert set(opens.values()) == {1}
    every = [*ways(archive).items()]
    if not IS_LONG:  # formats take turns
        every = every[h5py.is_hdf5(archive[0][0]) :: 2]
    for number, (name, (sources, options)) in enumerate(every):
        opens.clear()
        built = build(sources, str(tmp_path / f"a{number}"), catalog=catalog, **options)
        assert built.files_scanned == 0, name
        assert max(opens.values(), default=0) <= 1, name
        opens.clear()
        build(sources, str(tmp_path / f"a{number}"), catalog=catalog, mode="w", **options)
        plan(sources, catalog=catalog, **options)
        assert not opens, f"{name}: what was taken is taken again"
        build(sources, str(tmp_path / f"b{number}"), **options)
        assert max(opens.values(), default=0) <= 1, f"{name}: a build opens a file twice"
        ours, theirs = (content(str(tmp_path / f"{each}{number}")) for each in "ab")
        assert ours == theirs, name


def test_a_catalog_alone_is_built_in_several_ways(archive, tmp_path):
    """No sources, and options that the scan was not given."""
    catalog = str(tmp_path / "catalog")
    icevirt.scan_files(archive[0], catalog)
    one = build(None, str(tmp_path / "one"), catalog=catalog, concat_dim="time")
    two = build(
        None, str(tmp_path / "two"), catalog=catalog, concat_dim="step", rename={"time": "step"}
    )
    assert one.files_scanned == two.files_scanned == 0
    with pytest.raises(InvalidInputError, match="no scan with the options"):
        icevirt.build(
            None,
            str(tmp_path / "three"),
            catalog=catalog,
            scan_options={"variables": ["v"]},
        )


@pytest.mark.parametrize("bad", [[], ["first"], ["first", "last"]])
def test_each_file_is_opened_once_where_dimensions_are_inferred(archive, tmp_path, opens, bad):
    """The first good file and the last stay open until it is clear which facts they need."""
    files, some = list(archive[0]), {"max_bad_files": len(bad)}
    for place in bad:
        (tmp_path / f"{place}.nc").write_bytes(b"nothing")
        files.insert(0 if place == "first" else len(files), str(tmp_path / f"{place}.nc"))
    report = icevirt.build(files, str(tmp_path / "a"), scan_options=some)
    assert report.files_scanned == len(files)
    assert opens == Counter(file.rsplit("/", 1)[-1] for file in files)
    icevirt.build(files, str(tmp_path / "b"), concat_dim="time", scan_options=some)
    assert content(str(tmp_path / "a")) == content(str(tmp_path / "b"))
    for options in ({}, {"concat_dim": "time"}):
        again = icevirt.build(files, str(tmp_path / "a"), scan_options=some, **options)
        assert again.already_built


def test_dimensions_are_inferred_from_what_a_catalog_says(archive, tmp_path, opens):
    """Without sources, and a bad file in front, nothing is opened."""
    bad = tmp_path / "bad.nc"
    bad.write_bytes(b"nothing")
    catalog, some = str(tmp_path / "catalog"), {"max_bad_files": 1}
    files = [str(bad), *archive[0]]
    icevirt.scan_files(files[:2], catalog, scan_options=some)
    opens.clear()
    icevirt.scan_files(files, catalog, scan_options=some)
    assert opens == {"m0t1.nc": 1, "m0t2.nc": 1}, "the first good file is known"
    opens.clear()
    made = icevirt.plan(None, catalog=catalog, scan_options=some)
    assert made.concat_dim == ("time",)
    assert opens == {"m0t0.nc": 1}, "alone, it could not know what it is compared by"
    opens.clear()
    assert icevirt.plan(None, catalog=catalog, scan_options=some).concat_dim == ("time",)
    assert not opens


def test_facts_are_taken_while_files_are_open(archive, tmp_path, opens):
    """A scan with the options of the build as a hint leaves nothing to be taken."""
    catalog = str(tmp_path / "catalog")
    icevirt.scan_files(archive[0], catalog, concat_dim="time")
    opens.clear()
    build(None, str(tmp_path / "repo"), catalog=catalog, concat_dim="time")
    assert not opens


def test_a_file_that_changed_before_facts_are_taken_is_refused(archive, tmp_path, monkeypatch):
    """Facts of another version of a file never stand beside a scan."""
    catalog = str(tmp_path / "catalog")
    for file in archive[0]:  # one by one, so that nothing is inferred
        icevirt.scan_files([file], catalog)
    take = scanning._take_facts

    def changing(*given):
        write(archive[0][1], 0, 3, 4, kind="NETCDF4", lat=0.25)
        take(*given)

    monkeypatch.setattr(scanning, "_take_facts", changing)
    with pytest.raises(SourcesChangedError, match="changed since its scan") as caught:
        build(archive[0], str(tmp_path / "repo"), catalog=catalog, concat_dim="time")
    assert list(caught.value.facts["files"]) == [f"file://{archive[0][1]}"]
    monkeypatch.setattr(scanning, "_take_facts", take)
    with pytest.raises(CombineError, match=r"/y|/mask"):  # scanned again, it is another file
        build(archive[0], str(tmp_path / "repo"), catalog=catalog, concat_dim="time")


def test_a_plan_that_is_killed_goes_on_where_it_was(archive, tmp_path, opens, monkeypatch):
    """What one task wrote is not taken again by the next plan."""
    catalog = str(tmp_path / "catalog")
    for file in archive[0]:
        icevirt.scan_files([file], catalog)
    write_facts, written = scan_tasks.write_facts, []

    def dying(storage, part, rows):
        if written:
            raise KeyboardInterrupt
        written.append(part)
        write_facts(storage, part, rows)

    monkeypatch.setattr(scan_tasks, "write_facts", dying)
    with pytest.raises(KeyboardInterrupt):
        plan(archive[0], catalog=catalog, concat_dim="time")
    monkeypatch.setattr(scan_tasks, "write_facts", write_facts)
    opens.clear()
    plan(archive[0], catalog=catalog, concat_dim="time")
    assert sum(opens.values()) == 2


def test_two_plans_at_once_add_facts_side_by_side(archive, tmp_path):
    """Objects are named by what they hold; those of another way stay as they are."""
    catalog = str(tmp_path / "catalog")
    for file in archive[0]:
        icevirt.scan_files([file], catalog)
    plan(archive[0], catalog=catalog, concat_dim="time")
    before = {info.path: info.last_modified for info in storage_of(catalog).list("more")}
    plan(archive[0], catalog=catalog, concat_dim="time", tolerance={"mask": 1.0})
    after = {info.path: info.last_modified for info in storage_of(catalog).list("more")}
    assert before.items() < after.items()
    parts = sorted(complete_parts(storage_of(catalog)))
    files = closed_of(storage_of(catalog), parts).facts.files
    beside = read_beside(storage_of(catalog), files.parts, files.part, files.row)
    asked = np.bitwise_or.reduce(beside.asked)
    assert asked == Fact.digest | Fact.values | Fact.labels


@pytest.mark.ci
@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_random_archives_are_built_as_if_they_were_scanned_for_it(tmp_path_factory, data):
    """scan, then combine == build."""
    folder = tmp_path_factory.mktemp("random")
    kind = data.draw(st.sampled_from(FORMATS))
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    ny, nx = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 40))
    ends = np.cumsum([0, *lengths]).tolist()
    files = [
        write(folder / f"f{at}.nc", 0, ends[at], steps, kind=kind, ny=ny, nx=nx)
        for at, steps in enumerate(lengths)
    ]
    options = data.draw(
        st.sampled_from(
            [
                {"concat_dim": "time"},
                {"concat_dim": "time", "pad": "x"},
                {"concat_dim": "time", "data_vars": {"time": ["mask"]}},
                {"concat_dim": "time", "combine": "nested"},
            ]
        )
    )
    for file in files:
        icevirt.scan_files([file], str(folder / "catalog"))
    build(files, str(folder / "a"), catalog=str(folder / "catalog"), **options)
    build(files, str(folder / "b"), **options)
    assert content(str(folder / "a")) == content(str(folder / "b"))


def test_metadata_is_parsed_once_for_several_plans(archive, tmp_path):
    """Schemas that repeat are parsed once in a process, whatever is planned."""
    catalog = str(tmp_path / "catalog")
    icevirt.scan_files(archive[0], catalog, concat_dim="time")
    plan(archive[0], catalog=catalog, concat_dim="time")
    parsed = ArraySchema.loads.cache_info().misses
    for options in WAYS_ALONG_TIME:
        plan(archive[0], catalog=catalog, concat_dim="time", **options)
    assert ArraySchema.loads.cache_info().misses == parsed


def test_a_catalog_is_read_once_for_several_plans(archive, tmp_path, monkeypatch):
    """Plans of one scan share what was read; facts that one of them took are read when added."""
    scanned = icevirt.scan_files(archive[0], str(tmp_path / "catalog"))
    reads, get = Counter(), LocalStorage.get

    def counted(self, path, *given):
        reads[path.partition("/")[0]] += 1
        return get(self, path, *given)

    monkeypatch.setattr(LocalStorage, "get", counted)
    plans = [scanned.combine("time", **options) for options in WAYS_ALONG_TIME]
    assert [each.concat_dim for each in plans] == [("time",)] * len(plans)
    tables = Counter(reads)
    assert (tables["files"], tables["arrays"], tables["more"]) == (2, 0, 3), "first and last"
    for _ in range(2):
        scanned.combine("time", tolerance={"mask": 1.0})
    assert (reads["files"], reads["arrays"], reads["more"]) == (2, 0, 9), "old and new facts"
