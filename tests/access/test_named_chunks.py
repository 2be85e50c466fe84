"""One damaged chunk among others: every way to read names variable, chunk, object and range."""

import asyncio
import pickle

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import WrapperStore

import icevirt
from icevirt.access.store import naming_pipeline
from icevirt.access.store.chunk_errors import is_of_decoding
from icevirt.errors import StorageError
from icevirt.wire.panics import PanicError, raise_panics

TEXT = np.array([f"text {n}" for n in range(64)], dtype=object).reshape(8, 8)

# how chunks are stored, and which of them are damaged
ARRAYS = {
    "compressed": {"chunks": (2, 4)},
    "shards": {"chunks": (1, 4), "shards": (2, 4)},
    "text": {"chunks": (2, 4)},
    "plain, and cut short": {"chunks": (2, 4), "compressors": None},
}
READS = {
    "zarr": lambda s, _: zarr.open_group(s.store, mode="r")["a"][:],
    "zarr, wrapped": lambda s, _: zarr.open_array(WrapperStore(s.store), path="a", mode="r")[:],
    "zarr, a part": lambda s, _: zarr.open_array(s.store, path="a", mode="r")[5:7, 3:6],
    "zarr, rows": lambda s, _: zarr.open_array(s.store, path="a", mode="r").oindex[[5]],
    "zarr, points": lambda s, _: zarr.open_array(s.store, path="a", mode="r").vindex[
        [0, 5], [1, 5]
    ],
    "xarray over zarr": lambda s, _: xr.open_zarr(
        s.store, consolidated=False, chunks=None
    ).a.load(),
    "dask over zarr": lambda s, _: xr.open_zarr(s.store, consolidated=False).a.compute(),
    "a pickled array": lambda s, _: pickle.loads(
        pickle.dumps(zarr.open_array(s.store, path="a", mode="r"))
    )[:],
    "asynchronously": lambda s, _: asyncio.run(read_later(s)),
    "the engine": lambda _, path: xr.open_dataset(path, engine="icevirt").a.load(),
    "the engine, a part": lambda _, path: (
        xr.open_dataset(path, engine="icevirt").a[5:7, 3:6].load()
    ),
    "the engine, points": lambda _, path: (
        xr.open_dataset(path, engine="icevirt")
        .a.isel(y=xr.DataArray([0, 5]), x=xr.DataArray([1, 5]))
        .load()
    ),
}


async def read_later(session):
    array = await zarr.api.asynchronous.open_array(store=session.store, path="a", mode="r")
    return await array.getitem(slice(None))


@pytest.fixture(params=ARRAYS)
def damaged(request, tmp_path):
    """A repository one of whose chunks is damaged; its path, the chunk, its object and length."""
    repo = icevirt.Repository.create(
        tmp_path / "repo", icevirt.RepositoryConfig(inline_chunk_threshold_bytes=0)
    )
    session = repo.writable_session("main")
    data = TEXT if request.param == "text" else np.arange(64.0).reshape(8, 8)
    options = ARRAYS[request.param]
    dtype = str if request.param == "text" else "f8"
    array = zarr.create_array(
        session.store, name="a", shape=(8, 8), dtype=dtype, dimension_names=("y", "x"), **options
    )
    array[:] = data
    session.commit("written")
    source = repo.readonly_session("main").store.source_of("/a", (5, 5))
    assert source.chunk == (2, 1)
    file = tmp_path / "repo" / source.url.partition("/repo/")[2]
    whole = file.read_bytes()
    file.write_bytes(b"\xaa" * len(whole) if "short" not in request.param else whole[:-8])
    return request.param, repo, source


@pytest.mark.filterwarnings("ignore:.*codecs? .* in the Zarr:UserWarning")
@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification:")
def test_every_way_to_read_names_the_chunk(damaged, tmp_path):
    case, repo, source = damaged
    for name, read in READS.items():
        with pytest.raises(StorageError) as caught:
            read(repo.readonly_session("main"), tmp_path / "repo")
        shown = str(caught.value)
        if "short" in case:  # the storage has fewer bytes than the reference says
            assert source.url.rpartition("/")[2] in shown, name
            continue
        facts = caught.value.facts
        assert "cannot be decoded" in shown, name
        found = facts["variable"], facts["chunk"], facts["location"]
        assert found == ("/a", [2, 1], source.url), name
        assert (facts["offset"], facts["length"]) == (0, source.length), name
        assert "restore it from a copy" in shown, name
        assert "--chunks" in shown, name
        assert str(pickle.loads(pickle.dumps(caught.value))) == shown


def test_writing_a_part_of_a_damaged_chunk_names_it(tmp_path):
    repo = icevirt.Repository.create(
        tmp_path / "repo", icevirt.RepositoryConfig(inline_chunk_threshold_bytes=0)
    )
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(8,), chunks=(4,), dtype="f8")
    array[:] = 1.0
    for file in (tmp_path / "repo" / "chunks").iterdir():
        file.write_bytes(b"\xaa" * file.stat().st_size)
    with pytest.raises(StorageError, match="cannot be decoded") as caught:
        array[5] = 2.0
    assert caught.value.facts["chunk"] == [1]


def test_many_chunks_in_a_batch_are_told_apart(damaged):
    case, repo, _ = damaged
    if "short" in case:
        pytest.skip("its storage tells")
    with zarr.config.set({"codec_pipeline.batch_size": 8}):
        array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
        with pytest.raises(StorageError, match="cannot be decoded") as caught:
            array[:]
    assert caught.value.facts["chunk"] == [2, 1]


def test_arrays_of_other_stores_have_zarrs_own_pipeline(tmp_path):
    repo = icevirt.Repository.create(tmp_path / "repo")
    ours = zarr.create_array(repo.writable_session("main").store, name="a", shape=8, dtype="f8")
    other = zarr.create_array({}, name="a", shape=8, dtype="f8")
    other[:] = 1
    assert type(ours.async_array.codec_pipeline) is naming_pipeline.NamingPipeline
    assert type(other.async_array.codec_pipeline) is BatchedCodecPipeline
    assert b"icevirt" not in pickle.dumps(other.async_array.codec_pipeline)


def test_a_pipeline_that_a_program_chose_stays(tmp_path):
    repo = icevirt.Repository.create(tmp_path / "repo")
    fused = "zarr.core.codec_pipeline.FusedCodecPipeline"
    with zarr.config.set({"codec_pipeline.path": fused}):
        store = repo.writable_session("main").store
        array = zarr.create_array(store, name="a", data=np.arange(8.0), chunks=(4,))
        assert zarr.config.get("codec_pipeline.path") == fused
        assert type(array.async_array.codec_pipeline).__name__ == "FusedCodecPipeline"
        np.testing.assert_array_equal(array[:], np.arange(8.0))


KINDS = {
    "virtual": (
        "A source file is damaged",
        "icevirt verify {repo} --full --snapshot-id {id} --authorize {folder}/`",
    ),
    "native": ("An object of the repository is damaged", "icevirt check {repo} --chunks"),
    "inline": ("part of a manifest, and no source file has them", "icevirt check {repo}`"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_to_do_fits_the_kind_of_the_chunk(kind, tmp_path):
    ((folder := tmp_path / "files") / "deep").mkdir(parents=True)
    (folder / "deep" / "a.bin").write_bytes(b"\xaa" * 40)
    config = icevirt.RepositoryConfig(inline_chunk_threshold_bytes=512 * (kind == "inline"))
    store = icevirt.local_filesystem_store(f"{folder}/")
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(f"{folder.as_uri()}/", store))
    repo = icevirt.Repository.create(tmp_path / "repo", config, [f"{folder.as_uri()}/"])
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(4,), dtype="f8")
    if kind == "virtual":
        session.store.set_virtual_ref("a/c/0", f"{folder.as_uri()}/deep/a.bin", offset=0, length=40)
    else:
        buffer = zarr.core.buffer.default_buffer_prototype().buffer
        asyncio.run(session.store.set("a/c/0", buffer.from_bytes(b"\xaa" * 40)))
    with pytest.raises(StorageError, match="cannot be decoded") as caught:
        array[:]
    shown = str(caught.value)
    facts = {"repo": (tmp_path / "repo").as_uri(), "folder": folder.as_uri()}
    facts["id"] = session.snapshot_id
    for words in KINDS[kind]:
        assert words.format(**facts) in shown
    assert sum(first in shown for first, _ in KINDS.values()) == 1


class PanicException(BaseException):
    __module__ = "pyo3_runtime"


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, ValueError]
)
def test_what_is_no_panic_stays_as_it_is(kind):
    with pytest.raises(kind), raise_panics():
        raise kind


def test_a_panic_becomes_an_error_where_it_was_raised():
    def decode():
        raise PanicException("out of bounds")

    with pytest.raises(PanicError, match="out of bounds") as caught, raise_panics():
        decode()
    assert is_of_decoding(caught.value)
