"""Opaque bytes that h5py tagged with a dtype are of that dtype for every reader of a build."""

import h5py
import numpy as np
import pytest
import xarray as xr
from h5py import h5a, h5s, h5t

import icevirt
from fixtures.hdf5_cases.datatypes import TAGGED, tagged
from icevirt.connect.urls import file_url
from icevirt.model.attributes import Attributes, restore

BUILT = ("text", "unicode_be", "f8_be", "flag", "days_be", "quarters")


def write(path, day, names=TAGGED):
    """Write a variable and attributes of every tagged dtype, along a dimension that grows."""
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(2.0) + 2 * day
        file["t"].make_scale("t")
        for name in names:
            plain = TAGGED[name]
            data = np.roll(plain, day).astype(tagged(plain.dtype))
            made = file.create_dataset(
                name, data=np.stack([data, data]).astype(data.dtype), chunks=(1, 5)
            )
            made.dims[0].attach_scale(file["t"])
            for attribute, value in (
                ("value", data[2:3].reshape(())),
                ("values", data),
                ("one", data[:1]),
            ):
                made.attrs.create(attribute, value, dtype=data.dtype)
        record = np.zeros(1, [("when", tagged("M8[s]")), ("n", "i2")])
        file.attrs.create("record", record, dtype=record.dtype)
    return str(path)


@pytest.mark.ci
def test_a_build_holds_what_h5py_reads(tmp_path, repo_path, in_process):
    (tmp_path / "in").mkdir()
    files = [write(tmp_path / "in" / f"{day}.h5", day, BUILT) for day in range(2)]
    icevirt.build(files, repo_path, concat_dim="t")
    prefixes = [file_url(tmp_path / "in") + "/"]
    found = xr.open_dataset(
        repo_path, engine="icevirt", decode_cf=False, authorize_virtual_chunk_access=prefixes
    )
    opened = [h5py.File(file) for file in files]
    for name in BUILT:
        wanted = np.concatenate([file[name][...] for file in opened])
        assert found[name].dtype == wanted.dtype.newbyteorder("="), name
        assert found[name].values.tobytes() == wanted.astype(found[name].dtype).tobytes(), name
    for file in opened:
        file.close()
    checked = icevirt.verify(repo_path, full=True, authorize_virtual_chunk_access=prefixes)
    assert checked.ok, checked


def is_same(one, other):
    """Compare with h5py's value: text is ``str``, one element a scalar, times keep their unit."""
    other = np.asarray(other)
    if other.dtype.kind == "S":
        texts = other.reshape(-1).tolist()
        other = [text.decode() if text != b"\xff" else "ÿ" for text in texts]
        return one == (other[0] if len(other) == 1 else other)
    if other.dtype.kind == "U":
        texts = other.reshape(-1).tolist()
        return np.array_equal(one, texts[0] if len(texts) == 1 else texts)
    one = np.asarray(one)
    wanted = other.reshape(one.shape).astype(other.dtype.newbyteorder("="))
    return one.dtype == wanted.dtype and one.tobytes() == wanted.tobytes()


def test_attributes_are_what_h5py_reads(tmp_path, repo_path):
    scanned = icevirt.scan_file(write(tmp_path / "0.h5", 0))
    prefix = file_url(tmp_path) + "/"
    config = icevirt.RepositoryConfig()
    store = icevirt.local_filesystem_store(str(tmp_path))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    session = icevirt.Repository.create(repo_path, config, [prefix]).writable_session("main")
    scanned.write_to(session)
    session.commit("tagged")
    ds = xr.open_dataset(
        repo_path, engine="icevirt", decode_cf=False, authorize_virtual_chunk_access=[prefix]
    )
    with h5py.File(tmp_path / "0.h5") as file:
        for name in TAGGED:
            for attribute, wanted in file[name].attrs.items():
                if attribute in ("value", "values", "one"):
                    assert is_same(ds[name].attrs[attribute], wanted), (name, attribute)
    output = {(found.path, found.message.split(":")[0]) for found in scanned.findings}
    assert ("/", "attribute 'record'") in output


UNREADABLE = {"no dtype": (b"NUMPY:nothing", 4), "another length": (b"NUMPY:|S6", 5)}


@pytest.mark.parametrize("case", UNREADABLE.values(), ids=UNREADABLE)
def test_attributes_that_h5py_cannot_read_are_reported(case, tmp_path):
    tag, size = case
    with h5py.File(tmp_path / "a.h5", "w") as file:
        kind = h5t.create(h5t.OPAQUE, size)
        kind.set_tag(tag)
        odd = h5a.create(file.id, b"odd", kind, h5s.create_simple((1,)))
        odd.write(np.zeros(1, f"V{size}"), kind)
        with pytest.raises((TypeError, OSError)):
            file.attrs["odd"]
    scanned = icevirt.scan_file(tmp_path / "a.h5")
    assert [found.code for found in scanned.findings] == ["attribute-left-out"]
    assert tag.decode() in scanned.findings[0].message


KINDS = ["c8", "c16", "M8[ns]", "M8[D]", "m8[25s]", "V1", "V5"]


@pytest.mark.parametrize("dtype", KINDS)
def test_json_keeps_values_and_dtypes_of_attributes(dtype):
    raw = np.frombuffer(bytes(range(240)) + b"\xff" * 240, dtype).copy()
    if raw.dtype.kind == "c":
        raw[-1] = complex(np.nan, -np.inf)
    for value in (raw, raw[0], raw[-1], raw[:0]):
        kept = Attributes.of({"a": value})
        (back,) = restore(kept.values, kept.dtypes).values()
        assert back.dtype == raw.dtype
        if raw.dtype.kind == "c":
            np.testing.assert_array_equal(back, value)
        else:
            assert np.asarray(back).tobytes() == np.asarray(value).tobytes()
