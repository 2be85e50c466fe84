"""Attributes read from the bytes of object headers are those that libhdf5 reads."""

import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pytest
from h5py import h5o
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fixtures import hdf5_cases
from icevirt.archive.sources import SourceFile
from icevirt.objects.opening import open_source
from icevirt_scanners.hdf5.attributes import attributes_of
from icevirt_scanners.hdf5.hierarchy import Walk, _dimension_list
from icevirt_scanners.hdf5.raw import header as raw_header
from icevirt_scanners.hdf5.raw import space as raw_space
from icevirt_scanners.hdf5.raw.attributes import list_attributes
from icevirt_scanners.hdf5.raw.header import RawFile
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError


def output(found):
    """Return attributes in a form that compares types, shapes, values and order."""
    return [
        [
            (name, type(value), np.asarray(value).dtype.str, np.shape(value), repr(value))
            for name, value in held.items()
        ]
        for held in (found.shown, found.hidden)
    ] + [found.has_dimension_list, list(found.lost), found.latin]


def compare(path):
    """Compare all objects of a file; return how many attributes needed libhdf5."""
    with open_source(path) as source, h5py.File(path) as file:
        raw = RawFile.of(source, base=file.id.get_create_plist().get_userblock())
        assert raw is not None
        walk = Walk("file").below(h5o.open(file.id, b"/"))
        found = [(one.gid, one.address) for one in walk.groups]
        found += [(one.dsid, one.address) for one in walk.datasets]
        for oid, address in found:
            header = raw.header(address)
            assert header is not None

            def opened(oid=oid):
                return oid

            ours, theirs = attributes_of(opened, header), attributes_of(opened)
            assert output(ours) == output(theirs)
            if ours.scales is not None:
                references = _dimension_list(oid)
                assert ours.scales == tuple(
                    tuple(h5o.get_info(h5py.h5r.dereference(one, file.id)).addr for one in some)
                    for some in references
                )
    return len(found)


@pytest.mark.parametrize("name", hdf5_cases.CASES)
def test_all_attributes_of_a_case_are_the_same(name, tmp_path):
    path = tmp_path / "file.nc"
    hdf5_cases.CASES[name].write(path)
    if hdf5_cases.CASES[name].refused and not h5py.is_hdf5(path):
        return
    compare(path)


def test_attributes_of_real_files_are_the_same(sample_data):
    paths = [path for path in sample_data.rglob("*.nc") if h5py.is_hdf5(path)]
    assert sum(map(compare, paths)) > 100


NUMBERS = st.sampled_from(
    [f"{o}{k}" for o in "<>" for k in ("i1", "u2", "i4", "u8", "f4", "f8", "f2")]
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
VALUES = st.one_of(
    NUMBERS.flatmap(
        lambda d: arrays.arrays(
            np.dtype(d), arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
        )
    ),
    TEXTS,
    st.lists(TEXTS, min_size=1, max_size=3).map(lambda t: np.array(t, h5py.string_dtype())),
    st.binary(min_size=1, max_size=9).map(np.bytes_),
    st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=3).map(
        lambda t: np.array(t, "S5")
    ),
    st.just(h5py.Empty("f4")),
    st.booleans(),
    st.complex_numbers(),
)


@pytest.mark.ci
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", exclude_characters="\0/"), min_size=1, max_size=12),
        VALUES,
        max_size=12,
    ),
    st.sampled_from(["earliest", "v108", "latest"]),
    st.booleans(),
    st.sampled_from([0, 512]),
)
def test_random_attributes_are_the_same(found, bounds, tracked, userblock):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file.h5"
        with h5py.File(
            path, "w", libver=bounds, track_order=tracked, userblock_size=userblock
        ) as file:
            dataset = file.create_dataset("d", data=np.arange(3), track_order=tracked)
            for owner in (file, dataset):
                for name, value in found.items():
                    owner.attrs[name] = value
            for name in list(found)[::3]:
                del dataset.attrs[name]
                dataset.attrs[name] = 5
        compare(path)


class Bytes:
    """A file in memory."""

    local_path = None

    def __init__(self, raw):
        self.raw = raw
        self.file = SourceFile(url="memory:", size=len(raw))

    def read(self, offset, length):
        return self.raw[offset : offset + length]


@pytest.fixture(scope="module", params=["earliest", "latest"])
def intact(request, tmp_path_factory):
    """A file with attributes, and the address of what has them."""
    path = tmp_path_factory.mktemp("intact") / "f.h5"
    with h5py.File(path, "w", libver=request.param) as file:
        dataset = file.create_dataset("d", data=np.arange(3))
        for name, value in {"a": "text", "b": np.arange(3.0), "c": np.bytes_(b"xy")}.items():
            dataset.attrs[name] = value
        file["x"] = np.arange(3)
        file["x"].make_scale("x")
        dataset.dims[0].attach_scale(file["x"])
        return path, file.id.links.get_info(b"d").u


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**64).map(Random), st.booleans())
def test_damage_is_reported_and_never_another_error(intact, random, sealed):
    path, address = intact
    damaged = bytearray(path.read_bytes())
    for _ in range(random.choice([1, 3, 30])):
        damaged[random.randrange(len(damaged))] = random.choice([0, 1, 2, 127, 128, 254, 255])
    with pytest.MonkeyPatch.context() as patch:
        if not sealed:
            patch.setattr(raw_header, "check_sum", lambda block: None)
            patch.setattr(raw_space, "check_sum", lambda block: None)
        raw = RawFile.of(Bytes(bytes(damaged)), base=0)
        header = raw.header(address) if raw is not None else None
        if header is not None:
            with suppress(NotUnderstoodError):
                list_attributes(header, unread=())


def test_a_name_or_heap_of_another_length_is_libhdf5s_to_judge(tmp_path):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file.attrs["a name"] = "some text"
    data = path.read_bytes()
    free = data.index(b"some text") + 16  # what is left of the heap stands behind
    length = data.index((9).to_bytes(4, "little"), data.index(b"a name\0"))  # of the text
    for at, byte in ((data.index(b"a name\0") + 3, 0), (free + 12, 0x7F), (length, 4)):
        damaged = bytearray(data)
        damaged[at] = byte
        path.write_bytes(damaged)
        with open_source(path) as source:
            raw = RawFile.of(source, base=0)
            header = raw.header(raw.root)
            found = {}
            with suppress(NotUnderstoodError):
                found = list_attributes(header, unread=()).values
            assert not any(found.values())
