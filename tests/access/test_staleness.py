"""What happens when a source file changed after it was scanned, as the reader chose."""

import asyncio
import os
import pickle
import warnings
from datetime import UTC, datetime

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype

from access.virtual import VALUES, make
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import InvalidInputError, StaleReferenceError, StorageError
from icevirt.objects.answers import StaleReferenceWarning, Verification

PROTOTYPE = default_buffer_prototype()


@pytest.fixture
def virtual(tmp_path):
    return make(tmp_path)


def change(virtual):
    """Rewrite the file, of which only the order of the values changes, and return the new ones."""
    virtual.source.write_bytes(b"HEAD" + VALUES[::-1].tobytes())
    after = virtual.source.stat().st_mtime + 5
    os.utime(virtual.source, (after, after))
    return VALUES[::-1]


def store(virtual, on_stale, **options):
    return IcevirtStore(virtual.open().readonly_session("main"), on_stale=on_stale, **options)


def values(store):
    return zarr.open_array(store, path="v", mode="r")[:]


def test_an_error_is_the_default_and_says_what_else_there_is(virtual):
    change(virtual)
    with pytest.raises(StaleReferenceError, match="on_stale='warn'"):
        values(virtual.store())
    with pytest.raises(StaleReferenceError):
        values(store(virtual, "raise"))


def test_times_of_the_error_are_dates(virtual):
    before = virtual.source.stat().st_mtime
    change(virtual)
    with pytest.raises(StaleReferenceError) as caught:
        values(virtual.store())
    recorded, found = (
        datetime.fromisoformat(caught.value.facts[name]) for name in ("recorded", "found")
    )
    assert recorded.tzinfo == found.tzinfo == UTC
    assert 0 <= recorded.timestamp() - before < 1
    assert found.timestamp() == pytest.approx(virtual.source.stat().st_mtime, abs=1e-5)
    assert found > recorded


def test_a_warning_is_given_once_for_each_file_and_its_bytes_are_shown(virtual):
    changed = change(virtual)
    with pytest.warns(StaleReferenceWarning, match=r"source\.bin") as caught:
        np.testing.assert_array_equal(values(store(virtual, "warn")), changed)
    assert len(caught) == 1


def test_a_file_that_did_not_change_is_read_without_a_word(virtual):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(values(store(virtual, "warn")), VALUES)


def test_ignoring_says_nothing_and_counts(virtual):
    changed, ignoring = change(virtual), store(virtual, "ignore")
    np.testing.assert_array_equal(values(ignoring), changed)
    assert ignoring.verification == Verification(verifiable=4, stale=4)


@pytest.mark.parametrize("on_stale", ["warn", "ignore"])
@pytest.mark.filterwarnings("ignore::icevirt.objects.answers.StaleReferenceWarning")
def test_bytes_that_are_not_there_are_an_error_whatever_was_chosen(virtual, on_stale):
    os.truncate(virtual.source, 10)
    with pytest.raises(StorageError, match="ends too early"):
        values(store(virtual, on_stale))
    virtual.source.unlink()
    with pytest.raises(StorageError, match="does not exist"):
        values(store(virtual, on_stale))


def test_a_checksum_that_no_local_file_has_can_be_borne_with_too(tmp_path):
    virtual = make(tmp_path, checksum={"etag": "of-an-object-store"})
    with pytest.raises(StorageError, match="cannot be verified"):
        values(virtual.store())
    np.testing.assert_array_equal(values(store(virtual, "ignore")), VALUES)


def test_references_without_a_checksum_are_counted_as_unverifiable(tmp_path):
    virtual = make(tmp_path, checksum={"etag": ""})
    reader = virtual.store()
    assert reader.verification == Verification()
    values(reader)
    assert reader.verification == Verification(unverifiable=4)


def test_inline_and_native_chunks_have_nothing_to_verify(virtual):
    reader = virtual.store()
    for path in ("inline", "native"):
        zarr.open_array(reader, path=path, mode="r")[:]
    assert reader.verification == Verification()


def test_single_and_simultaneous_requests_are_treated_alike(virtual):
    changed = change(virtual)
    one, many = store(virtual, "ignore"), store(virtual, "ignore")

    async def read():
        wanted = (many.get(f"v/c/{n % 4}/0", PROTOTYPE) for n in range(40))
        return await asyncio.gather(*wanted)

    for n, body in enumerate(asyncio.run(read())):
        assert body.to_bytes() == one.get_sync(f"v/c/{n % 4}/0").to_bytes()
        assert body.to_bytes() == changed[n % 4 * 2 : n % 4 * 2 + 2].tobytes()
    assert one.verification == many.verification == Verification(verifiable=40, stale=40)


def test_the_choice_travels_with_the_store_and_makes_it_another(virtual):
    ignoring = store(virtual, "ignore")
    assert pickle.loads(pickle.dumps(ignoring)) == ignoring
    assert pickle.loads(pickle.dumps(ignoring)).on_stale == "ignore"
    assert ignoring != store(virtual, "raise")


def test_a_read_only_view_counts_with_the_store_it_was_made_of(virtual):
    whole = IcevirtStore(virtual.open().writable_session("main"), on_stale="ignore")
    whole.with_read_only(read_only=True).get_sync("v/c/0/0")
    assert whole.verification.verifiable == 1


def test_the_engine_takes_the_choice(virtual):
    options = {"engine": "icevirt", "authorize_virtual_chunk_access": [virtual.prefix]}
    changed = change(virtual)
    ds = xr.open_dataset(virtual.root, on_stale="ignore", **options)
    np.testing.assert_array_equal(ds["v"], changed)
    with pytest.raises(StaleReferenceError):
        xr.open_dataset(virtual.root, **options)["v"].load()


def test_another_choice_is_refused(virtual):
    with pytest.raises(InvalidInputError, match="'raise', 'warn', 'ignore'"):
        store(virtual, "shrug")
