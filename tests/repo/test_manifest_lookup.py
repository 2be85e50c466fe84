"""Few chunks of a manifest are searched for, many are looked up in decoded tables; both agree."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.repo import manifest_lookup
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.storage.memory import MemoryStorage
from icevirt.wire.manifests import open_manifest
from unit.wire.wire_values import manifests, meaning, virtual_table

NODE = ObjectId8(b"12345678")
ROWS = 20_000


@pytest.fixture
def assets():
    return Assets(MemoryStorage())


def put(assets, start=0):
    return assets.put_manifest({NODE: virtual_table(ROWS, per_file=9).shift([start])}).id


def found(assets, key, *index):
    there, table = assets.lookup.find(key, NODE, np.array(index, np.int64)[:, None])
    return there.tolist(), meaning(table)


def searches(assets, key):
    """Return how many lookups of two chunks there are until a manifest is decoded."""
    count = 0
    while assets.lookup.find_held(key) is None and count < 100:
        found(assets, key, 3, 4)
        count += 1
    return count


def test_a_manifest_is_decoded_when_searching_it_has_cost_as_much(assets):
    key = put(assets)
    wanted = (5, ROWS - 1, ROWS, 5, 0)
    first = found(assets, key, *wanted)
    assert first[0] == [0, 1, 3, 4]
    assert assets.lookup.find_held(key) is None
    assert 2 < searches(assets, key) < 20
    assert assets.lookup.find_held(key) is not None
    assert found(assets, key, *wanted) == first


def test_a_small_manifest_is_decoded_at_once(assets):
    key = assets.put_manifest({NODE: virtual_table(100)}).id
    assert searches(assets, key) == 1


def test_many_chunks_at_once_are_looked_up_in_decoded_tables(assets):
    key = put(assets)
    there, table = assets.lookup.find(key, NODE, np.arange(ROWS)[:, None])
    assert len(there) == len(table) == ROWS
    assert assets.lookup.find_held(key) is not None


def test_the_table_of_an_array_costs_no_other_array(assets, monkeypatch):
    """Else all tables of a manifest of a thousand arrays would take a million decodings."""
    nodes = [ObjectId8(bytes([number] * 8)) for number in range(3)]
    tables = {node: virtual_table(9).shift([at]) for at, node in enumerate(nodes)}
    key, decoded = assets.put_manifest(tables).id, []

    def read_table(locator, span):
        decoded.append(span)
        return read(locator, span)

    read = open_manifest.read_table
    monkeypatch.setattr(open_manifest, "read_table", read_table)
    for number, node in enumerate(nodes, 1):
        assert meaning(assets.read_table(key, node)) == meaning(tables[node])
        assert len(decoded) == number
    assert assets.read_table(key, NODE) is None


def test_a_manifest_that_had_to_make_room_and_is_opened_again_is_decoded():
    storage = MemoryStorage()
    one, other = (put(Assets(storage), start) for start in (0, 1))
    assets = Assets(storage, cache_bytes=4 << 20)  # a searched one takes more than its quarter
    for key in (one, other):
        found(assets, key, 3)
        assert assets.lookup.find_held(key) is None
    found(assets, one, 3)
    assert assets.lookup.find_held(one) is not None


def test_manifests_that_do_not_fit_together_are_searched_again():
    """A walk over more manifests than memory holds decodes none of them, the second time either."""
    storage = MemoryStorage()
    keys = [put(Assets(storage), start) for start in range(6)]
    assets = Assets(storage, cache_bytes=2 << 20)
    for key in 2 * keys:
        assert found(assets, key, 7)[0] == [0]
        assert assets.lookup.find_held(key) is None


def test_an_array_that_the_manifest_does_not_hold_has_no_chunks(assets):
    key, other = put(assets), ObjectId8(bytes(8))
    for _ in range(2):
        there, table = assets.lookup.find(key, other, np.array([[3]]))
        assert (len(there), len(table)) == (0, 0)
        assets.lookup.whole(key)


def test_a_manifest_that_is_gone_or_another_is_named(assets):
    key, unknown = put(assets), ObjectId12(bytes(12))
    with pytest.raises(ObjectNotFoundError):
        found(assets, unknown, 3)
    assets.storage.put(f"manifests/{unknown}", assets.manifest_file(key))
    with pytest.raises(FormatError, match="different object") as caught:
        found(assets, unknown, 3)
    assert caught.value.facts["path"] == f"manifests/{unknown}"


def test_threads_find_the_same_while_a_manifest_is_decoded(assets, monkeypatch):
    monkeypatch.setattr(manifest_lookup, "_PER_LOOKUP", 400)
    key, wrong = put(assets), []

    def work(first):
        wrong.extend(
            n for n in range(first, ROWS, 331) if found(assets, key, n, ROWS + n)[0] != [0]
        )

    threads = [threading.Thread(target=work, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert assets.lookup.find_held(key) is not None


@given(manifests, st.booleans())
def test_what_a_commit_keeps_of_a_manifest_is_what_its_file_says(arrays, timed):
    if timed:  # beside an etag, of which the file holds one
        arrays = {node: _timed(table) for node, table in arrays.items()}
    storage = MemoryStorage()
    writer, held = Assets(storage), HeldObjects(storage)
    key = writer.put_manifest(arrays, held).id
    for path, body in held.take().items():
        storage.put(path, body)
    read = {
        node: meaning(table) for node, table in Assets(storage).read_manifest(key).arrays.items()
    }
    kept, indexed = writer.manifest_to_rewrite(key).arrays, writer.manifest(key)
    assert {node: meaning(table) for node, table in kept.items()} == read
    assert {node: meaning(each.table) for node, each in indexed.items()} == read


def _timed(table):
    seconds = np.full(len(table.locations), 7, np.uint32)
    return replace(table, locations=replace(table.locations, last_modified=seconds))


def test_a_writer_keeps_the_newest_of_its_manifests_and_forgets_those_before_them():
    """Each commit replaces one, and each lost race leaves one that nothing names."""
    assets = Assets(MemoryStorage(), cache_bytes=32 << 20)
    keys = []
    for start in range(60):
        held = HeldObjects(assets.storage)
        table = virtual_table(5_000, per_file=9).shift([start])
        keys.append(assets.put_manifest({NODE: table}, held).id)
    kept = [assets.lookup.find_written(key) is not None for key in keys]
    assert kept == sorted(kept)
    assert kept[-1]
    assert 3 < sum(kept) < 30
    assert assets.manifest_to_rewrite(keys[-1]).num_chunk_refs == 5_000
