"""Chunk indices decoded from the bytes of a file are those that libhdf5 lists.

Where libhdf5 itself names the wrong chunks (extensible arrays whose axis without limit is not the
first), the values it reads are the judge.
"""

import tempfile
import tracemalloc
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from h5py import h5d, h5f, h5p, h5s
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icevirt.api.scan import scan_file
from icevirt.errors import ScanError
from icevirt.objects.opening import open_source
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.hdf5 import chunked
from icevirt_scanners.hdf5.files import FileContext, HeldFile
from icevirt_scanners.hdf5.raw import header, space
from icevirt_scanners.hdf5.raw import space as fields
from icevirt_scanners.hdf5.raw.chunks import layout_of, list_chunks
from icevirt_scanners.hdf5.raw.header import LAYOUT, RawFile, messages, only, space_of
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError
from long_forms import crossed
from open_files import open_below
from scanners.materialise import materialise

BOUNDS = ["earliest", "v108", "v110", "v112", "v114", "latest"]
BOTH = {
    "earliest": (h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST),
    "latest": (h5f.LIBVER_LATEST, h5f.LIBVER_LATEST),
}
GZIP = {"compression": "gzip", "shuffle": True}


@contextmanager
def dataset(path, name="d"):
    """Yield a dataset as `references` wants to see it, and the context of its file."""
    with open_source(path) as source, h5py.File(path) as file:
        dsid = file[name].id
        limits = dsid.get_space().get_simple_extent_dims(True)
        variable = SimpleNamespace(
            dsid=dsid,
            address=file.id.links.get_info(name.encode()).u,  # get_info of h5o walks the index
            own_chunk=dsid.get_create_plist().get_chunk(),
            own_shape=dsid.shape,
            limits=limits,
        )
        raw = RawFile.of(source, base=file.id.get_create_plist().get_userblock())
        beside = Elsewhere(source, ())
        held = HeldFile(source)
        context = FileContext.of(source, ScannerOptions(), file=held, raw=raw, elsewhere=beside)
        yield variable, context


def rows(found):
    """Return the columns as a sorted list of rows."""
    columns = (*found.index.T.tolist(), found.offset, found.length, found.mask)
    return sorted(zip(*(np.asarray(column).tolist() for column in columns), strict=True))


def kind_of(variable, context):
    """Return which kind of index a dataset has."""
    message = only(context.header(variable.address).messages, LAYOUT)
    return layout_of(message, context.raw.space).kind


def write(path, shape, chunks, maxshape, fill, *, bounds="latest", space=None, **options):
    with h5py.File(path, "w", libver=bounds, **(space or {})) as file:
        fill(file.create_dataset("d", shape, "<i4", chunks=chunks, maxshape=maxshape, **options))
    return path


def everything(dataset):
    dataset[...] = np.arange(dataset.size, dtype="i4").reshape(dataset.shape)


def corners(dataset):
    """Write few chunks, far apart and not in order."""
    for number in (5, 2, 9, 0, 7):
        place = tuple((n - 1) * number // 9 for n in dataset.shape)
        dataset[place] = number + 1


def grown_and_cut(dataset):
    everything(dataset)
    dataset.resize([n // 2 + 1 for n in dataset.shape])


INDICES = {
    "a tree of three levels": ("btree1", "earliest", (70, 90), (1, 1), None, everything, {}),
    "a filtered tree": ("btree1", "v108", (60, 90), (7, 4), (None, 90), everything, GZIP),
    "a fixed array": ("fixed", "latest", (60, 9), (7, 4), None, everything, {}),
    "a filtered fixed array": ("fixed", "v110", (60, 9), (7, 4), None, everything, GZIP),
    "a fixed array in pages": ("fixed", "latest", (100, 90), (1, 1), None, everything, {}),
    "few pages in use": ("fixed", "v114", (300, 900), (1, 1), (301, 910), corners, GZIP),
    "pages that end evenly": ("fixed", "latest", (64, 64), (1, 1), None, everything, {}),
    "an extensible array": ("extensible", "latest", (300, 9), (1, 4), (None, 9), everything, {}),
    "a sparse one of pages": ("extensible", "v110", (3000, 900), (1, 3), (None, 900), corners, {}),
    "a filtered one": ("extensible", "latest", (900, 9), (1, 3), (None, 90), everything, GZIP),
    "a tree of version 2": ("btree2", "latest", (200, 90), (1, 1), (None, None), everything, {}),
    "a filtered one of version 2": ("btree2", "v112", (90, 90), (2, 3), (None,) * 2, corners, GZIP),
    "a cut one": ("btree2", "latest", (90, 90), (2, 3), (None, None), grown_and_cut, GZIP),
    "never written": ("btree2", "latest", (90, 90), (2, 3), (None, None), lambda d: None, {}),
}


@pytest.mark.parametrize("userblock", [0, 1024])
@pytest.mark.parametrize(
    ("kind", "bounds", "shape", "chunks", "limits", "fill", "options"),
    INDICES.values(),
    ids=INDICES,
)
def test_every_kind_of_index_is_decoded(
    kind, bounds, shape, chunks, limits, fill, options, userblock, tmp_path
):
    space = {"userblock_size": userblock}
    path = write(
        tmp_path / "f.h5", shape, chunks, limits, fill, bounds=bounds, space=space, **options
    )
    with dataset(path) as (variable, context):
        assert kind_of(variable, context) == kind
        found = chunked._decode(variable, context)
        assert rows(found) == rows(chunked._list_chunks(variable.dsid, variable.own_chunk))


def test_an_implicit_index_is_decoded(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as file:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((2, 3))
        plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        extent = h5s.create_simple((20, 30), (22, 35))
        h5d.create(file.id, b"d", h5py.h5t.NATIVE_INT32, extent, plist)
    with dataset(path) as (variable, context):
        assert kind_of(variable, context) == "implicit"
        found = chunked._decode(variable, context)
        assert len(found.offset) == 100
        assert rows(found) == rows(chunked._list_chunks(variable.dsid, variable.own_chunk))


def test_pages_of_a_paged_file_and_small_addresses_are_read(tmp_path):
    paged = {"fs_strategy": "page", "fs_persist": True, "fs_page_size": 8192}
    write(tmp_path / "1.h5", (90, 90), (1, 1), (None, None), everything, space=paged)
    plist = h5p.create(h5p.FILE_CREATE)
    plist.set_sizes(4, 4)
    for bounds in ("earliest", "latest"):
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_libver_bounds(*BOTH[bounds])
        path = tmp_path / f"{bounds}.h5"
        fid = h5f.create(str(path).encode(), h5f.ACC_TRUNC, plist, access)
        with h5py.File(fid) as file:
            for name, limits in (("d", (90, 90)), ("e", (91, 99))):
                everything(
                    file.create_dataset(name, (90, 90), "i4", chunks=(1, 3), maxshape=limits)
                )
        for name in "de":
            with dataset(path, name) as (variable, context):
                found = chunked._decode(variable, context)
                assert rows(found) == rows(chunked._list_chunks(variable.dsid, variable.own_chunk))
    with dataset(tmp_path / "1.h5") as (variable, context):
        found = chunked._decode(variable, context)
        assert rows(found) == rows(chunked._list_chunks(variable.dsid, variable.own_chunk))


TURNED = {
    "two axes": ((30, 100), (3, 1), (40, None)),
    "the middle axis": ((6, 40, 6), (2, 2, 2), (8, None, 10)),
    "the last of three": ((5, 4, 90), (2, 3, 1), (5, 4, None)),
    "few chunks": ((6, 4), (3, 2), (6, None)),
}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("case", "bounds"),
    crossed(
        [*product(TURNED, ("plain", "gzip"))],
        ["latest", "earliest", "v110", "v114", "v112", "v108"],  # a new one of each
    ),
    ids=str,
)
def test_an_axis_without_limit_that_is_not_the_first_is_read_right(case, bounds, tmp_path):
    """libhdf5 2.0.0 lists the chunks of these under wrong coordinates."""
    shape, chunks, limits = TURNED[case[0]]
    options = GZIP if case[1] == "gzip" else {}
    path = write(tmp_path / "f.h5", shape, chunks, limits, everything, bounds=bounds, **options)
    found = materialise(scan_file(path).array("d"))
    assert np.array_equal(found, np.arange(found.size).reshape(shape))


def test_what_libhdf5_would_list_wrongly_is_refused_where_it_cannot_be_decoded(
    tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise NotUnderstoodError("something new")

    for name, bounds in (("new", "latest"), ("old", "earliest")):
        write(tmp_path / name, (30, 9), (3, 1), (40, None), everything, bounds=bounds)
    monkeypatch.setattr(chunked, "list_chunks", fail)
    with pytest.raises(ScanError, match="something new"):
        scan_file(tmp_path / "new")
    old = scan_file(tmp_path / "old").array("d")
    assert np.array_equal(materialise(old), np.arange(270).reshape(30, 9))


@st.composite
def files(draw):
    """How a dataset is laid out, how it may grow, and in which order which parts are written."""
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, (400, 40, 9)[ndim - 1])) for _ in range(ndim))
    chunks = tuple(draw(st.integers(1, max(1, n // 3))) for n in shape)
    limits = tuple(draw(st.sampled_from([None, n, n + 1, 2 * n])) for n in shape)
    chunks = tuple(c if m is None else min(c, m) for c, m in zip(chunks, limits, strict=True))
    options = draw(
        st.sampled_from(
            [{}, {}, GZIP, {"fletcher32": True}, {"shuffle": True}, {"compression": "lzf"}]
        )
    )
    boxes = draw(
        st.lists(st.tuples(*(st.tuples(*[st.integers(0, n)] * 2) for n in shape)), max_size=5)
    )
    resized = draw(
        st.none()
        | st.tuples(
            *(st.integers(1, 2 * n if m is None else m) for n, m in zip(shape, limits, strict=True))
        )
    )
    space = draw(
        st.sampled_from(
            [{}, {"userblock_size": 512}, {"fs_strategy": "page", "fs_page_size": 4096}]
        )
    )
    return shape, chunks, limits, options, boxes, resized, space


@pytest.mark.ci
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(files(), st.sampled_from(BOUNDS))
def test_any_index_is_that_of_libhdf5(file, bounds):
    shape, chunks, limits, options, boxes, resized, space = file

    def fill(dataset):
        for number, box in enumerate(boxes):
            part = tuple(slice(*sorted(edges)) for edges in box)
            dataset[part] = np.random.default_rng(number).integers(0, 9, dataset[part].shape)
        if resized:
            dataset.resize(resized)

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "f.h5"
        write(path, shape, chunks, limits, fill, bounds=bounds, space=space, **options)
        with dataset(path) as (variable, context):
            found = chunked._decode(variable, context)
            kind = kind_of_or_none(variable, context)
            if kind is None:
                assert found is None  # a single chunk is left to libhdf5
            elif not (kind == "extensible" and chunked._is_turned(variable)):
                listed = chunked._list_chunks(variable.dsid, variable.own_chunk)
                assert rows(found) == rows(listed)
        with h5py.File(path) as file_:
            values = file_["d"][...]
        if options.get("compression") != "lzf":
            assert np.array_equal(materialise(scan_file(path).array("d")), values)


def kind_of_or_none(variable, context):
    """Return the kind of index, None where there is one chunk, which is left to libhdf5."""
    try:
        return kind_of(variable, context)
    except NotUnderstoodError:
        return None


MUTATED = ["a tree of three levels", "few pages in use", "a sparse one of pages", "a cut one"]


@pytest.mark.ci
@pytest.mark.parametrize("name", MUTATED)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(random=st.integers(0, 2**64).map(Random))
def test_a_flipped_bit_is_read_as_libhdf5_reads_it_or_left_to_it(name, random, mutable):
    """Bits of the index only: libhdf5 may crash on object headers."""
    path, raw, _, blocks = mutable[name]
    begin, length = random.choice(blocks)
    flipped = bytearray(raw)
    flipped[begin + random.randrange(length)] ^= 1 << random.randrange(8)
    path.write_bytes(flipped)
    with dataset(path) as (variable, context):
        try:
            listed = chunked._list_chunks(variable.dsid, variable.own_chunk)
            found = chunked._decode(variable, context)
        except (OSError, RuntimeError, ValueError, OverflowError):
            return  # libhdf5 cannot list them either
        assert found is None or rows(found) == rows(listed)


@pytest.mark.parametrize("name", MUTATED)
@settings(max_examples=75, suppress_health_check=[HealthCheck.too_slow])
@given(random=st.integers(0, 2**64).map(Random), sealed=st.booleans())
def test_damage_anywhere_is_reported_and_never_another_error(name, random, sealed, mutable):
    """Checksums hide most damage; without them every field is met with any value."""
    _, raw, headers, blocks = mutable[name]
    damaged = bytearray(raw)
    for _ in range(random.choice([1, 1, 3])):
        begin, length = random.choice([*headers, *blocks])
        damaged[begin + random.randrange(length)] = random.choice([0, 1, 127, 128, 254, 255])
    with pytest.MonkeyPatch.context() as patch:
        if not sealed:
            for module in (fields, space, header):
                patch.setattr(module, "check_sum", lambda block: None)
        with suppress(NotUnderstoodError):
            decode(bytes(damaged), *mutable[name, "facts"])


class Raw(bytes):
    """A file, too long to be shown when a test fails."""

    def __repr__(self):
        return f"<{len(self)} bytes>"


@pytest.fixture(scope="module")
def mutable(tmp_path_factory):
    """Files with the blocks that the decoder reads of them: of their headers, of the index."""
    found = {}
    for name in MUTATED:
        _, bounds, shape, chunks, limits, fill, options = INDICES[name]
        path = tmp_path_factory.mktemp("mutable") / "f.h5"
        write(path, shape, chunks, limits, fill, bounds=bounds, **options)
        raw = Raw(path.read_bytes())
        with dataset(path) as (variable, _):
            known = tuple(None if n == h5s.UNLIMITED else n for n in variable.limits)
            facts = (variable.address, variable.own_chunk, variable.own_shape, known)
        blocks, headers = [], []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(space, "_GAP", -(1 << 40))  # every block alone, without what is between
            decode(raw, *facts, headers=headers, blocks=blocks)
        found[name] = path, raw, headers, blocks
        found[name, "facts"] = facts
    return found


def decode(raw, address, chunk, shape, limits, *, headers=None, blocks=None):
    """Decode the index of a dataset in a file in memory; note which blocks are read."""
    noted = headers if headers is not None else []

    def read(offset, length):
        noted.append((offset, length))
        return raw[offset : offset + length]

    whole = space_of(read, base=0, size=len(raw))
    message = only(messages(whole, address), LAYOUT)
    noted = blocks if blocks is not None else []
    return list_chunks(whole, message, chunk=chunk, shape=shape, limits=limits)


@pytest.mark.ci
def test_scanning_leaves_no_file_open_and_takes_bounded_memory(tmp_path):
    path = write(tmp_path / "f.h5", (100, 250), (1, 1), None, everything)
    scan_file(path)
    tracemalloc.start()
    for _ in range(20):
        scan_file(path)
    assert open_below(tmp_path) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * 25_000  # bytes for each chunk, of which the columns take 29
