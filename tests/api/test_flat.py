"""An append behind the last step looks at nothing else, and makes what one build of all files makes."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    official,
    opened,
    write_day,
    write_days,
)
from icevirt import errors
from icevirt.api.dataset import stored_tail, update_change
from icevirt.api.dataset.left_out import exclude
from icevirt.api.dataset.target import Target
from icevirt.api.upkeep import fold as folding
from icevirt.api.upkeep.fold import fold
from icevirt.archive.sources import SourceFile
from icevirt.catalog import lookup
from icevirt.catalog.listings import (
    Known,
    grow_listing,
    index_of,
    look_up,
    read_listing,
    write_listing,
)
from icevirt.catalog.part_copies import fold_parts
from icevirt.catalog.parts import complete_parts
from icevirt.planning import lengthened
from icevirt.planning.combine import plan_variable
from icevirt.repo import kept_objects
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Below
from icevirt.tasks import write_manifests

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "days", 6)


@pytest.fixture
def repo(tmp_path):
    return str(tmp_path / "repo")


def history(repo):
    return [each.id for each in icevirt.Repository.open(repo).ancestry(branch="main")]


def flat(files, repo, **options):
    report = icevirt.append(files, repo, **options)
    assert report.flat, report.findings
    return report


@pytest.fixture
def asked(monkeypatch):
    """Count what is read and written of the repository, by call and folder."""
    found = Counter()

    def counting(name):
        before = getattr(LocalStorage, name)

        def call(self, path="", *args, **kwargs):
            calls = [(name, path), *(("put", each) for each in kwargs.get("after", ()))]
            for verb, each in calls:
                parts = each.split("/")
                found[verb, "/".join(parts[: 2 if parts[0] == "icevirt" else 1])] += 1
            return before(self, path, *args, **kwargs)

        monkeypatch.setattr(LocalStorage, name, call)

    for name in ("get", "get_range", "put", "put_if", "list", "delete"):
        counting(name)
    return found


@pytest.mark.ci
@pytest.mark.parametrize("who", ["the process that appended before", "another one"])
def test_what_an_append_asks_for_does_not_follow_the_size_of_the_dataset(who, tmp_path, asked):
    """Nor is a list of manifests, of parts of the catalog or of files read.

    What a process wrote itself it does not read at all.
    """
    days, is_another = write_days(tmp_path / "days", 14), who == "another one"
    found = []
    for first in (2, 12):
        repo = str(tmp_path / f"repo{first}")
        icevirt.append(days[:first], repo, concat_dim="time")
        flat(days[first], repo)
        asked.clear()
        if is_another:
            kept_objects._cache.cache_clear()
        flat(days[first + 1], repo)
        found.append(dict(asked))
    lists = [{key for key in each if key[1] == "icevirt/listings"} for each in found]
    for each, more in zip(found, lists, strict=True):  # short lists are joined now and then
        assert sum(each.pop(key) for key in more) <= 3
        each.pop(("get_range", "icevirt/known"), 0)
    assert found[0] == found[1]
    assert asked["put", "manifests"] == asked["put", "snapshots"] == 1  # for all arrays
    assert asked["get", "manifests"] == asked["get", "snapshots"] == is_another
    assert not asked["get", "icevirt/catalog"]
    listed = {path for call, path in asked if call == "list"}
    assert listed == {"icevirt/excluded"}  # clocks were compared by the append before
    assert sum(asked.values()) <= (23 if is_another else 14)
    read = {path for call, path in asked if call.startswith("get")}
    assert is_another or not read  # beside `repo`
    asked.clear()
    kept_objects._cache.cache_clear()
    assert icevirt.append(days, repo).already_built
    assert {path for _, path in asked} == {"icevirt/tails", "icevirt/known", "icevirt/excluded"}


@pytest.mark.ci
def test_what_an_update_asks_for_does_not_follow_the_size_of_the_dataset(tmp_path, asked):
    """One process that updates again and again reads what it did not write itself, once."""
    found = []
    for first in (2, 12):
        folder, repo = tmp_path / f"days{first}", str(tmp_path / f"repo{first}")
        write_days(folder, first)
        icevirt.build(folder, repo, concat_dim="time")
        for day in range(first + 1, first + 4):
            write_day(folder / f"day{day:02}.nc", day)
            asked.clear()
            assert icevirt.update(repo).files_added == 1
        for key in [key for key in asked if key[1] == "icevirt/listings"]:
            assert asked.pop(key) <= 2  # short lists are joined now and then
        found.append(dict(asked))
    assert found[0] == found[1]
    assert asked["get", "icevirt/catalog"] <= 2  # what scans there are, and the newest part
    assert not asked["get", "manifests"] + asked["get", "snapshots"]
    assert sum(asked.values()) <= 24


@pytest.mark.ci
def test_an_append_waits_for_few_answers_one_after_the_other(tmp_path, monkeypatch):
    """Of `repo`, scans, what a commit refers to, and `repo` again; others come meanwhile."""
    days, repo, spans = write_days(tmp_path / "days", 6), str(tmp_path / "repo"), []
    inside = set[int]()  # threads whose call makes others of its own

    def slow(name):
        before = getattr(LocalStorage, name)

        def call(self, path="", *args, after=(), **kwargs):
            if threading.get_ident() in inside:
                return before(self, path, *args, **kwargs)
            with ThreadPoolExecutor(8) as pool:  # as to a bucket
                [*pool.map(self.put, after, dict(after).values())]
            begin = time.monotonic()
            inside.add(threading.get_ident())
            time.sleep(0.08)
            try:
                return before(self, path, *args, **kwargs)
            finally:
                inside.remove(threading.get_ident())
                spans.append((begin, time.monotonic(), f"{name} {path}"))

        monkeypatch.setattr(LocalStorage, name, call)

    icevirt.append(days[:2], repo, concat_dim="time")
    flat(days[2], repo)
    for name in ("get", "get_range", "get_versioned", "put", "put_if"):
        slow(name)
    found = []
    for day in days[3:]:
        spans.clear()
        flat(day, repo)
        chain, free = [], 0.0
        for begin, end, what in sorted(spans, key=lambda each: each[1]):
            if begin >= free:
                chain.append(what)
                free = end
        found.append(chain)
    assert min(map(len, found)) <= 5, found


def test_coordinates_grow_in_chunks_as_one_build_cuts_them(days, repo, tmp_path, monkeypatch):
    """Beyond one chunk, only the last is written again; layout and codecs are a build's."""
    monkeypatch.setattr(plan_variable, "JOINED_CHUNK_BYTES", 72)  # nine values
    monkeypatch.setattr(stored_tail, "HOT_REFERENCES", 20)
    native = {"scan_options": {"variable_policy": {"time": "native", "time_bnds": "native"}}}
    icevirt.build(days[:1], repo, concat_dim="time", **native)
    for day in days[1:]:
        flat(day, repo)
    icevirt.build(days, tmp_path / "whole", concat_dim="time", **native)
    ours, whole = opened(repo).load(), opened(str(tmp_path / "whole")).load()
    xr.testing.assert_identical(ours, whole)
    for name in whole.variables:
        mine, theirs = (
            {key: repr(each) for key, each in held[name].encoding.items() if key != "source"}
            for held in (ours, whole)
        )
        assert mine == theirs
    assert whole.time.encoding["chunks"] == (9,)


def test_many_values_of_a_single_file_are_cut_so_that_more_can_follow(tmp_path, monkeypatch):
    """However many there are: no append has to cut all of them anew."""
    monkeypatch.setattr(plan_variable, "JOINED_CHUNK_BYTES", 72)
    monkeypatch.setattr(lengthened, "MOST_REWRITTEN", 4 * 72)
    repo, steps = str(tmp_path / "repo"), 100
    for number, count in enumerate((steps, 1)):
        hours = np.arange(count) + number * steps
        made = xr.Dataset({"v": ("time", hours + 0.5)}, {"time": hours})
        made.time.attrs["units"] = "hours since 2001-01-01"
        made.v.encoding["chunksizes"] = (10,)
        made.to_netcdf(tmp_path / f"{number}.nc", unlimited_dims=["time"])
    icevirt.build(tmp_path / "0.nc", repo, concat_dim="time")
    assert opened(repo).time.encoding["chunks"] == (9,)
    flat(tmp_path / "1.nc", repo)
    with opened(repo) as found:
        assert_same_dataset(found, expected_dataset([tmp_path / "0.nc", tmp_path / "1.nc"], "time"))


def test_references_of_arrays_that_lie_alike_are_collected_at_once(tmp_path, monkeypatch):
    """Chunks that were never written are lacking in one of them only."""
    files, sizes = [], []
    for number in range(4):
        files.append(tmp_path / f"{number}.h5")
        with h5py.File(files[-1], "w") as file:
            file["time"] = np.arange(3.0) + 3 * number
            file["time"].make_scale("time")
            for name, width in (("u", 16), ("v", 16), ("w", 16), ("wide", 24)):
                made = file.create_dataset(name, (3, width), "f4", chunks=(1, 8))
                made.dims[0].attach_scale(file["time"])
                made[:] = np.arange(3 * width).reshape(3, width) + number
            file.create_dataset("gaps", (3, 16), "f4", chunks=(1, 8))[number % 3] = 7.0
            file["gaps"].dims[0].attach_scale(file["time"])
    collect = write_manifests.alike_tables

    def collected(refs, read, windows):
        found = collect(refs, read, windows)
        sizes.append((len(windows), found is not None))
        return found

    monkeypatch.setattr(write_manifests, "alike_tables", collected)
    repo = str(tmp_path / "repo")
    icevirt.build(files[:1], repo, concat_dim="time")
    for path in files[1:]:
        flat(path, repo)
    assert sizes == [(4, True)] * 3
    with opened(repo) as found:
        for name in ("u", "v", "w", "wide", "gaps"):
            parts = [h5py.File(path)[name][()] for path in files]
            np.testing.assert_array_equal(found[name].values, np.concatenate(parts))


REASONS = {
    "a late file": (lambda days: (days[1], days[:1] + days[2:3]), "do not all lie behind"),
    "another encoding": (lambda days: (write_day(days[2], 3, scale=0.5), days[:2]), "to be stored"),
    "another unit": (
        lambda days: (write_day(days[2], 3, units="days since 2010-01-01"), days[:2]),
        "",
    ),
}


@pytest.mark.parametrize(("made", "why"), REASONS.values(), ids=REASONS)
def test_what_does_not_simply_follow_is_planned_with_all_files(made, why, days, repo):
    late, before = made(days)
    icevirt.append(before, repo, concat_dim="time", combine_options={"on_mismatch": "native"})
    report = icevirt.append(late, repo)
    if why:
        assert not report.flat
        assert why in report.findings[-1]
    expected = expected_dataset(sorted([*before, late]), "time")
    xr.testing.assert_allclose(opened(repo).load(), expected.load(), rtol=1e-6)


@pytest.mark.ci
def test_what_others_made_stays_and_is_not_undone_later(days, repo):
    """What others changed before an append stops a rebuild after it, as without the append."""
    icevirt.append(days[:2], repo, concat_dim="time")
    session = icevirt.Repository.open(repo).writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    group["packed"].attrs["note"] = "theirs"
    group.attrs["title"] = "theirs"
    group.create_array("static", data=np.arange(3), dimension_names=["other"])
    session.commit("somebody's")
    flat(days[2], repo)
    flat(days[3], repo)
    found = opened(repo)
    assert (found.packed.attrs["note"], found.attrs["title"]) == ("theirs", "theirs")
    assert found.static.values.tolist() == [0, 1, 2]
    assert_same_dataset(
        opened(repo).drop_vars("static")[["time", "x", "y"]],
        expected_dataset(days[:4], "time")[["time", "x", "y"]].assign_attrs(found.attrs),
    )
    with pytest.raises(errors.PlanChangedError, match="note"):
        icevirt.build(days, repo, concat_dim="time", mode="w")
    session = icevirt.Repository.open(repo).writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    group.create_array("anomaly", data=np.zeros(16), dimension_names=["time"])
    session.commit("steps of the dataset")
    with pytest.raises(errors.PlanChangedError, match="anomaly"):
        icevirt.append(days[4], repo)


@pytest.mark.ci
def test_the_official_client_reads_and_commits_between_appends(days, repo):
    icevirt.append(days[:2], repo, concat_dim="time")
    flat(days[2], repo)
    flat(days[3], repo)
    expected = expected_dataset(days[:4], "time")
    theirs = official(repo)
    read = zarr.open_group(theirs.readonly_session("main").store, mode="r")
    raw = opened(repo, decode_cf=False).load()
    for name in raw.variables:
        np.testing.assert_array_equal(read[name][...], raw[name].values)
    session = theirs.writable_session("main")
    zarr.open_group(session.store, mode="a").attrs["note"] = "official"
    session.commit("an attribute")
    session = theirs.writable_session("main")
    array = zarr.open_group(session.store, mode="a")["packed"]
    array[0] = array[1]
    session.commit("a value")
    flat(days[4], repo)
    found = opened(repo)
    assert (found.sizes["time"], found.attrs["note"]) == (20, "official")
    xr.testing.assert_equal(found.packed[0].drop_vars("time"), found.packed[1].drop_vars("time"))
    xr.testing.assert_equal(found.packed[1:16].drop_attrs(), expected.packed[1:16].drop_attrs())


@pytest.mark.ci
def test_manifests_are_joined_once_however_often_others_commit_beside(tmp_path, repo, monkeypatch):
    monkeypatch.setattr(stored_tail, "HOT_REFERENCES", 12)
    days = write_days(tmp_path / "days", 8)
    icevirt.append(days[:1], repo, concat_dim="time")
    for day in days[1:8]:
        flat(day, repo)
    before, joins, others = opened(repo).load(), [], [*range(12)]
    join, swap = folding._write_tables, RepoInfoFile.swap
    monkeypatch.setattr(folding, "_write_tables", lambda *args: joins.append(1) or join(*args))

    def second(*args, **kwargs):
        if others:
            session = official(repo).writable_session("main")
            zarr.open_group(session.store, mode="a").require_group(f"notes/n{others.pop()}")
            session.commit("theirs")
        return swap(*args, **kwargs)

    monkeypatch.setattr(RepoInfoFile, "swap", second)
    assert fold(repo).joined > 0
    assert (len(joins), others) == (1, [])
    xr.testing.assert_identical(opened(repo).load(), before)
    store = official(repo).readonly_session("main").store
    assert len([*zarr.open_group(store, mode="r")["notes"]]) == 12
    assert icevirt.check(repo).ok


@pytest.mark.ci
def test_manifests_of_appends_are_joined_and_garbage_goes(tmp_path, repo, monkeypatch):
    monkeypatch.setattr(stored_tail, "HOT_REFERENCES", 12)
    days = write_days(tmp_path / "days", 9)
    icevirt.append(days[:1], repo, concat_dim="time")
    for day in days[1:8]:
        flat(day, repo)
    before = opened(repo).load()
    assert icevirt.status(repo).manifests_to_join > 4
    plan = icevirt.maintain(repo, dry_run=True)
    done = icevirt.maintain(repo)
    assert plan.manifests_joined >= done.manifests_joined > 0
    xr.testing.assert_identical(opened(repo).load(), before)
    assert fold(repo).snapshot_id == ""
    flat(days[8], repo)
    held = icevirt.Repository.open(repo)
    held.expire_snapshots(older_than=icevirt_now())
    held.garbage_collect(icevirt_now())
    official(repo).garbage_collect(icevirt_now())
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    assert icevirt.check(repo).problems == ()
    icevirt.build(days, repo, concat_dim="time", mode="w")
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))


def icevirt_now():
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) - timedelta(microseconds=1)


@pytest.mark.ci
@pytest.mark.parametrize("who", ["an append", "a user"])
def test_an_append_that_is_overtaken_goes_on_top(who, days, repo, monkeypatch):
    icevirt.append(days[:2], repo, concat_dim="time")
    swap, left = RepoInfoFile.swap, [1]

    def overtaken(*args, **kwargs):
        if left:
            left.clear()
            if who == "an append":
                flat(days[2], repo)
            else:
                session = icevirt.Repository.open(repo).writable_session("main")
                zarr.open_group(session.store, mode="a").attrs["note"] = "theirs"
                session.commit("somebody's")
        return swap(*args, **kwargs)

    monkeypatch.setattr(RepoInfoFile, "swap", overtaken)
    report = icevirt.append(days[2:4], repo)
    assert report.flat
    assert report.files_known == (1 if who == "an append" else 0)
    assert len(history(repo)) == 4
    expected = expected_dataset(days[:4], "time")
    assert opened(repo).sizes == expected.sizes
    xr.testing.assert_equal(opened(repo).packed, expected.packed)


@pytest.mark.ci
def test_a_write_that_fails_leaves_the_dataset_as_it_was(days, repo, monkeypatch):
    """Whichever it is: the same append afterwards does what is left to do."""
    icevirt.append(days[:2], repo, concat_dim="time")
    flat(days[2], repo)
    put, put_if = LocalStorage.put, LocalStorage.put_if
    number, fatal = [0], [0]

    def failing(before):
        def call(self, path, *args, **kwargs):
            objects = kwargs.pop("after", {})
            for each, body in objects.items():
                self.put(each, body)
            number[0] += 1
            if number[0] == fatal[0]:
                raise errors.StorageError("the disk is full", do="", path=path)
            return before(self, path, *args, **kwargs)

        return call

    monkeypatch.setattr(LocalStorage, "put", failing(put))
    monkeypatch.setattr(LocalStorage, "put_if", failing(put_if))
    tip, failed = history(repo), 0
    while True:
        number[0], fatal[0] = 0, fatal[0] + 1
        try:
            flat(days[3], repo)
        except errors.StorageError:
            failed += 1
            assert history(repo) == tip
            continue
        break
    assert failed >= 8
    assert_same_dataset(opened(repo), expected_dataset(days[:4], "time"))
    assert icevirt.append(days[:4], repo).already_built


@pytest.mark.parametrize("leave_out", ["undo", "withdraw", "exclude"])
def test_an_append_hears_of_files_that_are_taken_out_while_it_looks(
    leave_out, days, repo, monkeypatch
):
    """They are excluded before the branch moves, so an append that sees the latter sees both."""
    icevirt.append(days[:2], repo, concat_dim="time")
    flat(days[2], repo)
    look, left = Target.look, [lambda: icevirt.undo(repo, exclude=True)]
    if leave_out == "withdraw":
        left = [lambda: icevirt.withdraw(days[2], repo, authorize=str(Path(days[0]).parent))]
    if leave_out == "exclude":
        late, about = Path(days[4]).as_uri(), {"why": "excluded", "branch": None, "group": None}
        left = [lambda: exclude(LocalStorage(repo), [late], **about)]

    def look_late(*args, **kwargs):
        time.sleep(0.2)  # whatever else is looked at was seen before
        while left:
            left.pop()()
        return look(*args, **kwargs)

    monkeypatch.setattr(Target, "look", look_late)
    report = icevirt.append(days[3:5] if leave_out == "exclude" else days[2:4], repo)
    assert (report.files_appended, report.files_excluded) == (1, 1)
    assert opened(repo).sizes["time"] == (16 if leave_out == "exclude" else 12)
    if leave_out == "exclude":  # and leaves no trace
        parts = Path(repo, "icevirt/catalog/files").iterdir()
        assert late not in str([pq.read_table(part).to_pylist() for part in parts])


def test_undone_appends_are_appended_again(days, repo):
    icevirt.append(days[:2], repo, concat_dim="time")
    flat(days[2], repo)
    held = icevirt.Repository.open(repo)
    held.reset_branch("main", history(repo)[1])
    assert opened(repo).sizes["time"] == 8
    flat(days[2:4], repo)
    assert_same_dataset(opened(repo), expected_dataset(days[:4], "time"))


@pytest.mark.parametrize("what", ["lost", "damaged"])
def test_without_the_record_of_the_end_all_files_are_planned(what, days, repo):
    icevirt.append(days[:2], repo, concat_dim="time")
    (tail,) = Path(repo, "icevirt", "tails").iterdir()
    tail.write_bytes(tail.read_bytes()[:-1] + b"?") if what == "damaged" else tail.unlink()
    report = icevirt.append(days[2], repo)
    assert not report.flat
    assert "recorded no end" in report.findings[-1]
    flat(days[3], repo)
    assert_same_dataset(opened(repo), expected_dataset(days[:4], "time"))


# -- which files are known -------------------------------------------------------------------------


def files(count, start=0):
    return [
        SourceFile(url=f"s3://b/{n:06}.nc", size=n, etag=f"e{n}", last_modified=n)
        for n in range(start, start + count)
    ]


def test_files_are_known_by_an_index_of_which_little_is_read():
    storage = MemoryStorage()
    held, piece = files(30_000), "0" * 20
    storage.put(f"known/{piece}", index_of(held))
    changed = SourceFile(url=held[7].url, size=1, etag="other", last_modified=2)
    asked = [held[0], held[29_999], *files(3, 40_000), changed]
    read = []
    get_range = storage.get_range
    storage.get_range = lambda path, *, offset, length: (
        read.append(length) or get_range(path, offset=offset, length=length)
    )
    found = look_up(storage, [(piece, len(held))], asked)
    assert found == [Known.yes] * 2 + [Known.no] * 3 + [Known.perhaps_changed]
    assert sum(read) < 30_000 * 16 / 1.5
    assert all(each is Known.yes for each in look_up(storage, [(piece, len(held))], held))


def test_a_list_that_grows_unread_is_read_and_verified_as_a_whole():
    storage = MemoryStorage()
    pieces, held = write_listing(storage, "a" * 20, files(40)), files(40)
    for number in range(30):
        more = files(1 + number % 3, len(held))
        grown = grow_listing(storage, pieces, len(held), more)
        for path, raw in grown.objects.items():
            storage.put(path, raw)
        pieces, held = grown.pieces, held + more
        assert len(pieces) <= 8
        found = read_listing(storage, pieces[-1][0])
        assert [*found.files] == held
        assert found.pieces == pieces
        assert found.whole == ("a" * 20, 40)
    other = grow_listing(storage, pieces[:-1], pieces[-1][1], files(2, 90_000))
    (raw,) = (raw for path, raw in other.objects.items() if path.startswith("listings/"))
    storage.put(f"listings/{pieces[-1][0]}.parquet", raw)
    with pytest.raises(errors.FormatError):
        read_listing(storage, pieces[-1][0])


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole first", "grown first"])
def test_a_list_that_is_there_stays_as_it_was_cut(is_whole):
    """A list that is written again is the same list: who named its pieces goes on to read them."""
    storage, name, held = MemoryStorage(), "b" * 20, files(40)
    write_listing(storage, "a" * 20, held[:38])
    grown = read_listing(storage, "a" * 20)
    both = [None, grown] if is_whole else [grown, None]
    first = write_listing(storage, name, held, grown=both[0])
    there = {info.path: storage.get(info.path) for info in storage.list()}
    assert write_listing(storage, name, held, grown=both[1]) == first
    assert {info.path: storage.get(info.path) for info in storage.list()} == there
    storage.put(f"listings/{name}.parquet", b"damaged")
    write_listing(storage, name, held)
    assert [*read_listing(storage, name).files] == held


def test_parts_of_the_catalog_are_joined_and_scans_stay(days, repo):
    """A plan of all files afterwards scans nothing and makes the same."""
    icevirt.append(days[:1], repo, concat_dim="time")
    for day in [*days[1:3], *days[4:]]:
        flat(day, repo)
    kept = Below(LocalStorage(repo), "icevirt/catalog/")
    parts = complete_parts(kept)
    assert len(parts) == 5
    assert fold_parts(kept, older_than=0, fewest=2) == 0
    assert fold_parts(kept, older_than=1 << 60, fewest=2) == 4
    assert len(complete_parts(kept)) == 1
    assert len([*kept.list("refs")]) == len([*kept.list("arrays")]) == 1
    late = icevirt.append(days[3], repo)
    assert (late.flat, late.files_scanned, late.files_reused) == (False, 1, 5)
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))


def test_parts_that_are_joined_while_an_update_lists_sources_are_found(tmp_path, monkeypatch):
    folder, repo = tmp_path / "days", str(tmp_path / "repo")
    write_days(folder, 2)
    icevirt.build(folder, repo, concat_dim="time")
    write_day(folder / "day03.nc", 3)
    assert icevirt.update(repo).files_added == 1
    write_day(folder / "day04.nc", 4)
    joined = []

    def list_and_compare(*how):  # which takes minutes where a bucket is large
        scans = Below(LocalStorage(repo), "icevirt/catalog/")
        joined.append(fold_parts(scans, older_than=1 << 60, fewest=2))
        return before(*how)

    before = update_change.list_and_compare
    monkeypatch.setattr(update_change, "list_and_compare", list_and_compare)
    kept_objects._cache.cache_clear()  # another process than the one that wrote the parts
    lookup._known_tables.cache_clear()
    assert icevirt.update(repo).files_added == 1
    assert joined == [1]


def write_hours(path, first, *, steps=4, every=6):
    """Write a file with values at some hours."""
    time = first + every * np.arange(steps)
    xr.Dataset(
        {"a": ("time", np.arange(steps, dtype="f4"))},
        {"time": ("time", time, {"units": "hours since 2001-01-01"})},
    ).to_netcdf(path, unlimited_dims="time")
    return str(path)


GAPS = {
    "the next day": ([48], []),
    "a day that lacks": (
        [72],
        ["'time' goes from 2001-01-02T18:00:00 to 2001-01-04, which is 5 times the mean step"],
    ),
    "a day that lacks among the new": (
        [48, 96],
        ["'time' has 1 gap: 4 steps between 2001-01-03T18:00:00 and 2001-01-05"],
    ),
}


@pytest.mark.parametrize(("new", "expected"), GAPS.values(), ids=GAPS.keys())
def test_steps_that_are_missing_before_new_files_are_reported(new, expected, repo, tmp_path):
    old = [write_hours(tmp_path / f"h{at}.nc", at) for at in (0, 24)]
    icevirt.build(old, repo)
    report = flat([write_hours(tmp_path / f"h{at}.nc", at) for at in new], repo)
    gaps = [each for each in report.findings if "'time' " in each and "ordered" not in each]
    assert [each[: len(text)] for each, text in zip(gaps, expected, strict=True)] == expected


def test_files_of_one_step_show_a_gap_by_the_mean_step(repo, tmp_path):
    icevirt.build([write_hours(tmp_path / f"d{d}.nc", 24 * d, steps=1) for d in range(5)], repo)
    assert not flat(write_hours(tmp_path / "d5.nc", 120, steps=1), repo).findings
    (found,) = flat(write_hours(tmp_path / "d8.nc", 192, steps=1), repo).findings
    assert "2001-01-06 to 2001-01-09, which is 3 times the mean step before" in found


def test_values_that_are_written_again_are_counted_as_they_are_stored(repo, tmp_path):
    icevirt.build([write_hours(tmp_path / f"h{at}.nc", at) for at in (0, 24)], repo)
    report = flat(write_hours(tmp_path / "h48.nc", 48), repo)
    (time,) = (each for each in report.arrays if each.path == "/time")
    (held,) = (each for each in icevirt.info(repo).arrays if each.path == "/time")
    assert time.references == held.references
    assert time.references.bytes_stored == 12 * 8
