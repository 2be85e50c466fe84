"""Two ways from the catalog to the manifests: what they write is the same, byte for byte."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import icevirt
from builds.support import (
    assert_same_dataset,
    closed_of,
    expected_dataset,
    opened,
    tables_of,
    write_days,
)
from grouping import combine_spec
from icevirt.archive.blocks.cutting import dumps, join, loads, part_of
from icevirt.archive.blocks.packing import Block, unpack
from icevirt.archive.plan import FileRows
from icevirt.archive.scanned import ScanOutcome
from icevirt.catalog import parts as rows
from icevirt.catalog import references as refs
from icevirt.catalog.parts import write_part
from icevirt.errors import FormatError, IcevirtError
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.model.chunks import ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.schedule import write_tasks as routes
from icevirt.planning.schedule.write_tasks import Route, bundles, drafts, route_of, write_items
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks import shuffle, window_tables, write_manifests
from icevirt.tasks.write_manifests import PackedTasks
from icevirt.wire.manifests.encoding import ManifestEncoding
from planning.test_combine import data, facts_of, file, static, time

pytestmark = pytest.mark.ci


def planned(files, *, per_part=3, change=lambda facts: facts, **wish):
    """Write a catalog, and return it with the plan of its facts, perhaps changed."""
    catalog, names = MemoryStorage(), []
    for at in range(0, len(files), per_part):
        outcomes = [
            ScanOutcome(file=f.source, scanned=f, error=None, seconds=0.0)
            for f in files[at : at + per_part]
        ]
        names.append(write_part(catalog, f"p{at}", tables_of(outcomes)))
    facts = change(closed_of(catalog, names).facts)
    return catalog, combine_eras(facts, combine_spec(concat_dim=("time",), **wish))


def task_of(items, catalog, repo):
    """Return the task for some items, which come as `bundles` yields them."""
    return write_manifests.WriteTask(
        parcels=tuple(map(PackedTasks.of, items)),
        catalog=catalog,
        repo=repo,
        record=MemoryStorage(),
        inline_threshold=64,
        encoding=ManifestEncoding(),
    )


def written(catalog, plan, *, shuffled, tasks=2):
    """Write all items by one of the ways; return what lies in the repository."""
    repo = MemoryStorage()
    if not shuffled:
        together = bundles(plan, list(drafts(plan)), FileRows.of(plan.files))
        write_manifests.run_write(task_of(together, catalog, repo))
    else:
        items = list(write_items(plan))
        needs, inbox = shuffle.Needs(), [[] for _ in items]
        for number, item in enumerate(items):
            needs.add(number, item)
        for number, task in enumerate(needs.tasks(catalog, tasks)):
            for to, row in shuffle.run_map(task, number):
                inbox[to].insert(0, row)  # rows come in any order
        for item, rows in zip(items, inbox, strict=True):
            write_manifests.run_write(task_of([[item]], catalog, repo), rows)
    return {info.path: repo.get(info.path) for info in repo.list()}


def archive(order):
    """Files of two steps with 3 x 2 chunks each, of which some were read, and a static variable."""

    def field(number, url):
        index = np.stack(np.unravel_index(np.arange(6), (2, 1, 3)), axis=1)
        made = data(url, 2, path="/field")
        references = made.references.virtual(
            index=index,
            offset=np.arange(6) * 100 + number,
            length=np.arange(6) + 10 * number + 1,
            locations=Locations.one(url),
        )
        names, shape, edges = ("time", "y", "x"), (2, 4, 12), (1, 4, 4)
        return ScannedField(made, references, names, shape, edges)

    return [
        file(
            number,
            lambda u, n=number: field(n, u),
            lambda u: data(u, 2, edge=2),
            time([2.0 * number, 2.0 * number + 1]),
            static,
        )
        for number in order
    ]


def ScannedField(made, references, names, shape, edges):
    """Give an array other dimensions."""
    from dataclasses import replace

    return replace(
        made, references=references, dimension_names=names, shape=shape, chunk_shape=edges
    )


@pytest.mark.parametrize("limit", [2, 5, 7, 500_000])
def test_both_ways_write_the_same_objects(limit):
    """Files in an order that has nothing to do with the catalog's, windows of every size."""
    order = np.random.default_rng(limit).permutation(17).tolist()
    catalog, plan = planned(archive(order), max_references=limit)
    direct = written(catalog, plan, shuffled=False)
    assert any(path.startswith("manifests/") for path in direct)
    for tasks in (1, 3, 50):
        assert written(catalog, plan, shuffled=True, tasks=tasks) == direct


@pytest.mark.parametrize("limit", [1, 2, 5, 500_000])
def test_chunks_of_different_lengths_go_the_same_ways(limit):
    """A window of a rectilinear grid wants chunks by where they begin, not by one length of all."""
    steps, edges = [6, 1, 4, 6, 2, 9, 6], [2, 1, 4, 3, 2, 3, 2]
    begins = np.cumsum([0, *steps])
    files = [
        file(
            n,
            lambda u, n=n: data(u, steps[n], edge=edges[n]),
            time(np.arange(begins[n], begins[n + 1])),
        )
        for n in (3, 0, 6, 1, 5, 2, 4)
    ]
    catalog, plan = planned(
        files, max_references=limit, chunk_grid="rectilinear", on_mismatch="native"
    )
    (array,) = (each for each in plan.arrays if each.path == "/tos")
    assert array.hybrid.bounds is not None
    assert not array.hybrid.chunks
    direct = written(catalog, plan, shuffled=False)
    assert written(catalog, plan, shuffled=True) == direct


@pytest.mark.parametrize("limit", [1, 3, 500_000])
@pytest.mark.parametrize("rule", ["first", "last"])
def test_files_that_overlap_go_the_same_ways(limit, rule):
    """Each reference of the catalog is written once or counted as cut, though files count twice."""
    runs = [np.arange(at, at + 6) for at in (4, 8)] + [np.arange(20, 22), np.arange(24)]
    files = [
        file(n, lambda u, n=n: data(u, len(runs[n]), edge=2), time(runs[n]))
        for n in range(len(runs))
    ]
    order = files if rule == "first" else files[::-1]
    catalog, plan = planned(order, max_references=limit, duplicates=rule)
    (array,) = (each for each in plan.arrays if each.path == "/tos")
    assert len(array.files) > len(set(array.files.tolist()))
    direct = written(catalog, plan, shuffled=False)
    assert written(catalog, plan, shuffled=True) == direct
    together = bundles(plan, list(drafts(plan)), FileRows.of(plan.files))
    results = write_manifests.run_write(task_of(together, catalog, MemoryStorage()))
    windows = [window for result in results for window in result.windows]
    mine = [each for each in windows if each.node_id == bytes(array.node_id)]
    assert sum(each.references.total + each.replaced for each in mine) == array.expected


@pytest.mark.parametrize("limit", [1, 3, 40])
def test_rows_that_are_sent_early_change_nothing(monkeypatch, limit):
    """A row is sent when it is large enough, or when a task holds too many references."""
    catalog, plan = planned(archive([4, 2, 0, 3, 1, 5]), max_references=6)
    direct = written(catalog, plan, shuffled=False)
    monkeypatch.setattr(shuffle, "_AT_ONCE", limit)
    assert written(catalog, plan, shuffled=True) == direct
    monkeypatch.setattr(shuffle.catalog, "BLOCK_REFS", limit)
    assert written(catalog, plan, shuffled=True) == direct


def test_a_window_is_sent_only_the_chunks_it_wants():
    """Windows that cut the field in three receive a third of it each."""
    catalog, plan = planned(archive([0, 1, 2]), max_references=1)
    needs = shuffle.Needs()
    items = list(write_items(plan))
    for number, item in enumerate(items):
        needs.add(number, item)
    sent = []
    for number, task in enumerate(needs.tasks(catalog, 1)):
        for to, row in shuffle.run_map(task, number):
            takes = np.ones(len(items[to].files), bool)
            arrived = shuffle.Arrived([row]).locate(items[to].files, takes, "/field")
            sent += [len(block) for block in arrived]
    assert sent == [1] * 18  # three files of two steps and three columns


def test_a_huge_array_is_cut_into_blocks_that_nobody_has_to_hold_together(monkeypatch):
    """One file alone: its windows read what is theirs, and blocks are small."""
    monkeypatch.setattr(rows.catalog, "BLOCK_REFS", 7)
    monkeypatch.setattr(refs, "_BLOCKS", 2)
    catalog, plan = planned(
        [file(0, lambda u: data(u, 100, edge=2), time(np.arange(100.0)))], max_references=9
    )
    (part,) = plan.files.parts
    blocks = list(refs.RefsReader(catalog).blocks(part, "/tos"))
    assert [len(unpack(block)) for block in blocks] == [7] * 7 + [1]
    found = np.concatenate([unpack(block).index for block in blocks])
    assert found.tolist() == [[n, 0] for n in range(50)]
    held, made = [], window_tables.WindowColumns.table

    def counted(columns):
        table = made(columns)
        held.append(len(table))
        return table

    monkeypatch.setattr(window_tables.WindowColumns, "table", counted)
    direct = written(catalog, plan, shuffled=False)
    assert max(held) <= 9  # what a window holds, and not the array
    assert sum(held) == 50 + 1  # and the coordinate
    assert written(catalog, plan, shuffled=True) == direct


def test_the_way_is_chosen_by_how_often_parts_would_be_read(monkeypatch):
    """Files in the order of the parts need no shuffle; files in another order do."""
    monkeypatch.setattr(routes, "_FEW_READS", 10)
    files = archive(range(40))
    ordered = combine_eras(facts_of(files), combine_spec(concat_dim=("time",), max_references=12))
    assert route_of(ordered).kind is Route.direct
    assert "no shuffle" in route_of(ordered).describe()
    mixed = [files[n] for n in np.random.default_rng(1).permutation(40)]
    plan = combine_eras(
        facts_of(mixed, per_part=20), combine_spec(concat_dim=("time",), max_references=3)
    )
    routing = route_of(plan)
    assert routing.kind is Route.shuffle
    assert routing.times > 4
    assert "times without" in routing.describe()
    monkeypatch.setattr(routes, "_FEW_READS", 10_000)
    assert route_of(plan).kind is Route.direct
    monkeypatch.setattr(routes, "_FEW_REFERENCES", 100)
    assert route_of(plan).kind is Route.shuffle


@pytest.mark.ci
@pytest.mark.spark
def test_a_build_that_shuffles_equals_one_that_does_not(tmp_path, spark, monkeypatch):
    """On real Spark, through both ways: the same manifests under the same names."""
    days = write_days(tmp_path / "archive", 6)
    mixed = [days[n] for n in (3, 0, 5, 1, 4, 2)]
    icevirt.build(mixed, tmp_path / "direct", concat_dim="time", executor=spark)
    monkeypatch.setattr(routes, "_FEW_READS", -1)
    monkeypatch.setattr(routes, "_FACTOR", -1)
    output = []
    icevirt.build(
        mixed, tmp_path / "shuffled", concat_dim="time", executor=spark, progress=output.append
    )
    names = [sorted(os.listdir(tmp_path / name / "manifests")) for name in ("direct", "shuffled")]
    assert names[0] == names[1] != []
    assert_same_dataset(opened(str(tmp_path / "shuffled")), expected_dataset(days, "time"))
    assert any(step.phase == "write" and step.done == step.total for step in output)


def failing_map(task, number):
    """Send something, and fail."""
    yield 1, b"one"
    if number == task:
        raise FormatError("a part is damaged", do="Scan it again.", part=number)


def gathered(task, rows):
    """Return what came."""
    return task, sorted(rows)


def recorded(task, rows):
    """Leave a mark that the task was finished."""
    Path(task).write_bytes(b"".join(rows))


@pytest.mark.spark
def test_no_task_is_finished_with_half_of_its_rows(spark, tmp_path):
    """A build that is run again would take its manifest for a whole one."""
    marks = [str(tmp_path / name) for name in "abc"]
    with pytest.raises(FormatError, match="a part is damaged"):
        SparkExecutor(spark).shuffle(failing_map, [7, 1, 7], recorded, marks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.ci
@pytest.mark.spark
def test_an_error_of_a_mapper_is_raised_as_itself(spark):
    """The driver sees the error, not a Java trace; without one all rows are where they belong."""
    done = SparkExecutor(spark).shuffle(failing_map, [7, 7, 7], gathered, ["a", "b", "c"])
    assert done == [("a", []), ("b", [b"one"] * 3), ("c", [])]
    with pytest.raises(FormatError, match="a part is damaged") as caught:
        SparkExecutor(spark).shuffle(failing_map, [7, 1, 7], gathered, ["a", "b"])
    assert isinstance(caught.value, IcevirtError)
    assert SparkExecutor(spark).run(str, [1, 2]) == ["1", "2"]


# -- blocks --------------------------------------------------------------------------------------


@st.composite
def blocks(draw):
    """Blocks of one array of two dimensions, with references of every kind."""
    n = draw(st.integers(0, 12))
    kinds = draw(
        st.lists(st.sampled_from([ChunkType.virtual, ChunkType.inline]), min_size=n, max_size=n)
    )
    kind = np.array(kinds, np.uint8)
    length = np.array(draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)), np.uint64)
    inline = kind == ChunkType.inline
    offset = np.array(draw(st.lists(st.integers(0, 2**40), min_size=n, max_size=n)), np.uint64)
    sizes = np.where(inline, length, 0)
    offset[inline] = (np.cumsum(sizes) - sizes)[inline]
    targets = draw(st.integers(0, 3))
    source = np.array(draw(st.lists(st.integers(0, targets), min_size=n, max_size=n)), np.uint32)
    raw = draw(st.binary(min_size=int(sizes.sum()), max_size=int(sizes.sum())))
    return Block(
        file=np.sort(np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), np.int32)),
        index=np.arange(2 * n, dtype=np.uint32).reshape(n, 2),
        kind=kind,
        offset=offset,
        length=length,
        data=np.frombuffer(raw, np.uint8),
        source=np.where(inline, 0, source).astype(np.uint32),
        targets=Locations(
            url=Strings.of(f"s3://b/{n}" for n in range(targets)),
            etag=Strings.of(str(n) for n in range(targets)),
            last_modified=np.arange(targets, dtype=np.uint32),
        ),
    )


def meaning(block):
    """Return what each reference of a block says."""
    output = []
    for row in range(len(block)):
        at, size = int(block.offset[row]), int(block.length[row])
        if block.kind[row] == ChunkType.inline:
            where = block.data[at : at + size].tobytes()
        else:
            source = int(block.source[row])
            target = block.targets
            where = (
                at,
                size,
                None if not source else (target.url[source - 1], target.etag[source - 1]),
            )
        output.append((int(block.file[row]), block.index[row].tolist(), where))
    return output


@given(blocks())
def test_a_block_travels_as_it_is(block):
    assert meaning(loads(dumps(block))) == meaning(block)


@pytest.mark.ci
@given(st.lists(blocks(), min_size=1, max_size=4), st.randoms())
def test_blocks_are_cut_and_joined_without_loss(several, random):
    whole = join(several)
    assert meaning(whole) == [row for block in several for row in meaning(block)]
    rows = np.array(random.sample(range(len(whole)), len(whole) // 2), np.int64)
    part = part_of(whole, rows, whole.file[rows])
    assert meaning(part) == [meaning(whole)[row] for row in rows.tolist()]
    assert len(part.targets) <= len(whole.targets)


def test_items_of_the_same_files_know_of_them_once():
    """Two fields and a coordinate over the same files hold one column of each kind."""
    _, plan = planned(archive(range(6)), max_references=2)
    files = FileRows.of(plan.files)
    found = [each for each in bundles(plan, list(drafts(plan)), files) if len(each) > 1]
    assert found
    for items in found:
        windows = [window for item in items for window in item.windows if window.axes]
        assert len({id(item.files) for item in items}) == 1
        assert len(windows) > len({id(window.starts) for window in windows}) == 1
        assert len({id(window.takes) for window in windows}) == 1
    assert {item.number for each in bundles(plan, list(drafts(plan)), files) for item in each} == {
        draft.number for draft in drafts(plan)
    }
