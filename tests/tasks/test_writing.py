"""The write stage puts every chunk where the plan says, whatever the windows and the files."""

import json

import numpy as np
import pytest

from builds.support import closed_of, tables_of
from grouping import combine_spec
from icevirt.archive.plan import FileRows
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.archive.scanned import ScanOutcome
from icevirt.catalog.parts import write_part
from icevirt.errors import FormatError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.schedule.write_tasks import balance, bundles, drafts
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks import window_tables, write_manifests
from icevirt.tasks.chunk_encoding import encode_chunks
from icevirt.tasks.write_manifests import PackedTasks
from icevirt.wire.manifests import manifest
from icevirt.wire.manifests.encoding import ManifestEncoding
from planning.test_combine import BYTES, data, file, static, time


def run(
    files, *, per_part=2, threshold=512, catalog=None, repo=None, record=None, dim=("time",), **wish
):
    """Combine files, write every item, and return (plan, results, repo)."""
    catalog, names = MemoryStorage() if catalog is None else catalog, []
    for at in range(0, len(files), per_part):
        outcomes = [
            ScanOutcome(file=f.source, scanned=f, error=None, seconds=0.0)
            for f in files[at : at + per_part]
        ]
        names.append(write_part(catalog, f"p{at}", tables_of(outcomes)))
    facts = closed_of(catalog, names).facts
    plan = combine_eras(facts, combine_spec(concat_dim=dim, **wish))
    repo = MemoryStorage() if repo is None else repo
    (pile,) = balance(plan, list(drafts(plan)), 1)
    task = write_manifests.WriteTask(
        parcels=tuple(map(PackedTasks.of, bundles(plan, pile, FileRows.of(plan.files)))),
        catalog=catalog,
        repo=repo,
        record=MemoryStorage() if record is None else record,
        inline_threshold=threshold,
        encoding=ManifestEncoding(),
    )
    results = sorted(write_manifests.run_write(task), key=lambda result: result.number)
    return plan, tuple(results), repo


def tables(plan, results, repo):
    """Read the manifests back: one table per array path."""
    found = {}
    for result in results:
        if result.manifest_id is None:
            continue
        raw = repo.get(f"manifests/{ObjectId12(result.manifest_id)}")
        assert len(raw) == result.size_bytes
        for node, table in manifest.decode(raw).arrays.items():
            found.setdefault(node, []).append(table)
    by_node = {array.node_id: array.path for array in plan.arrays}
    return {by_node[node]: ChunkTable.concatenate(parts) for node, parts in found.items()}


def step(number, value):
    """A file with one time step."""
    return file(number, lambda u: data(u, 1), time([value]), static)


def test_references_of_all_files_stand_in_the_order_of_time():
    """Chunk (n, 0) of the dataset is the chunk of the n-th file, with that file's checksum."""
    files = [step(3, 3.0), step(1, 1.0), step(2, 2.0), step(5, 5.0), step(4, 4.0)]
    plan, results, repo = run(files, max_references=2)
    assert [w.extents for r in results for w in r.windows if w.references.virtual == 2]
    tos = tables(plan, results, repo)["/tos"]
    assert tos.index.tolist() == [[n, 0] for n in range(5)]
    urls = [tos.locations.url[int(source)] for source in tos.source]
    assert urls == [f"file:///data/f{n}.nc" for n in range(1, 6)]
    assert set(tos.locations.last_modified.tolist()) == {1_600_000_001}
    assert tos.offset.tolist() == [1000] * 5


def test_coordinates_of_all_files_are_joined_into_one_chunk():
    """Values that were read become one inline chunk in the order of the dataset."""
    plan, results, repo = run([step(3, 3.0), step(1, 1.0), step(2, 2.0)])
    found = tables(plan, results, repo)["/time"]
    assert found.kind.tolist() == [ChunkType.inline]
    assert np.frombuffer(found.inline.tobytes(), "<f8").tolist() == [1.0, 2.0, 3.0]


ORDERS = {
    "in order": [0, 1, 2, 3, 4],
    "in no order": [3, 0, 4, 1, 2],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("lengths", [[2, 2, 2, 2, 2], [1, 3, 2, 4, 1]], ids=["alike", "unlike"])
def test_values_are_put_in_their_places_as_the_general_way_puts_them(order, lengths, monkeypatch):
    """Whatever the lengths of files and their order in the catalog."""
    begins = np.cumsum([0, *lengths])
    files = [
        file(
            n,
            lambda u, n=n: data(u, lengths[n], edge=1),
            time(np.arange(begins[n], begins[n + 1]) * 0.5, fill_value="NaN"),
        )
        for n in order
    ]
    plan, results, repo = run(files)
    found = tables(plan, results, repo)["/time"]
    expected = np.arange(sum(lengths)) * 0.5
    assert np.frombuffer(found.inline.tobytes(), "<f8").tolist() == expected.tolist()
    monkeypatch.setattr(window_tables, "_end_to_end", lambda window: False)
    assert run(files)[1] == results


def test_large_joined_values_become_native_chunks_named_by_their_content():
    """Above the inline threshold bytes go to chunk objects; equal bytes, equal names."""
    plan, results, repo = run([step(1, 1.0), step(2, 2.0)], threshold=8)
    found = tables(plan, results, repo)["/time"]
    assert found.kind.tolist() == [ChunkType.native]
    name = ObjectId12(found.chunk_ids[found.source[0]].tobytes())
    assert np.frombuffer(repo.get(f"chunks/{name}"), "<f8").tolist() == [1.0, 2.0]
    assert name == ObjectId12.of_content(repo.get(f"chunks/{name}"))


def test_a_last_file_stored_whole_is_encoded_for_the_grid_of_the_others():
    """Virtual and stored chunks mix in one array; the stored ones decode to the values."""
    values = np.arange(4, dtype="<f4").reshape(1, 4)
    last = file(
        3,
        lambda u: data(
            u,
            1,
            whole=True,
            codecs=BYTES,
            references=ChunkTable.of_inline(index=np.zeros((1, 2)), chunks=[values.tobytes()]),
        ),
        time([5.0]),
    )
    first = [file(n, lambda u: data(u, 2, edge=2), time([2.0 * n - 1, 2.0 * n])) for n in (1, 2)]
    plan, results, repo = run([*first, last])
    tos = tables(plan, results, repo)["/tos"]
    assert tos.index.tolist() == [[0, 0], [1, 0], [2, 0]]
    assert tos.kind.tolist() == [ChunkType.virtual, ChunkType.virtual, ChunkType.inline]
    expected = encode_chunks(plan.arrays[0].zarr_json, values, (4, 0), 1)
    at = int(tos.offset[2])
    assert tos.inline[at : at + int(tos.length[2])].tobytes() == expected.inline.tobytes()
    assert json.loads(plan.arrays[0].zarr_json)["shape"] == [5, 4]


def test_a_second_run_writes_the_same_bytes_and_the_record_saves_the_work(monkeypatch):
    """Deterministic names and bytes make retried and resumed tasks harmless."""
    files = [step(1, 1.0), step(2, 2.0)]
    repo, record = MemoryStorage(), MemoryStorage()
    _, first, _ = run(files, repo=repo, record=record)
    before = {info.path: repo.get(info.path) for info in repo.list()}
    _, again, other = run(files)
    assert again == first
    assert {info.path: other.get(info.path) for info in other.list()} == before
    monkeypatch.setattr(write_manifests, "window_table", None)
    _, resumed, _ = run(files, repo=repo, record=record)
    assert resumed == first


def test_a_task_fetches_the_references_of_a_part_once():
    """However many arrays and windows it writes."""

    class Counting(MemoryStorage):
        fetched = ()

        def get(self, path):
            self.fetched += (path,)
            return super().get(path)

    names = [f"/v{n}" for n in range(9)]
    files = [
        file(n, *(lambda u, path=path: data(u, 1, path=path) for path in names), time([float(n)]))
        for n in range(6)
    ]
    catalog = Counting()
    plan, results, repo = run(files, catalog=catalog, max_references=3)
    assert sum(len(result.windows) for result in results) > len(names)
    assert all(len(tables(plan, results, repo)[path]) == 6 for path in names)
    fetched = sorted(path for path in catalog.fetched if path.startswith("refs/"))
    assert [path.partition("-")[0] for path in fetched] == [f"refs/p{n}" for n in (0, 2, 4)]


def test_a_manifest_that_vanished_is_written_again():
    """The record is believed only while the manifest is there."""
    files = [step(1, 1.0), step(2, 2.0)]
    repo, record = MemoryStorage(), MemoryStorage()
    _, first, _ = run(files, repo=repo, record=record)
    for info in list(repo.list("manifests")):
        repo.delete(info.path)
    _, again, _ = run(files, repo=repo, record=record)
    assert again == first
    assert len(list(repo.list("manifests"))) == len(first)


def test_results_count_what_was_written():
    """The report is made of these figures."""
    plan, results, _ = run([step(1, 1.0), step(2, 2.0)])
    by_node = {
        ObjectId8(window.node_id): window.references
        for result in results
        for window in result.windows
    }
    assert by_node[plan.arrays[0].node_id] == ReferenceCounts(virtual=2, bytes_referenced=180)
    assert by_node[plan.arrays[1].node_id] == ReferenceCounts(inline=1, bytes_stored=16)


def test_a_catalog_without_the_promised_values_is_refused():
    """A damaged catalog never becomes fill values."""
    good = step(1, 1.0)
    coordinate = good.arrays[1]
    bad = type(good)(
        source=file(2).source,
        scanner="test",
        scanner_version="1",
        groups=good.groups,
        arrays=(
            data("file:///data/f2.nc", 1),
            time([2.0], references=ChunkTable.empty(1)),
            static("file:///data/f2.nc"),
        ),
    )
    assert coordinate.whole
    with pytest.raises(FormatError, match=r"f2\.nc"):
        run([good, bad])
