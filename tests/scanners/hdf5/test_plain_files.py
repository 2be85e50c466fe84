"""What is read from the bytes of a file is what libhdf5 says of it; damage leads to libhdf5."""

import random
from contextlib import suppress

import h5py
import numpy as np
import pytest
from h5py import h5o

from fixtures import hdf5_cases
from grouping import grouped
from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError
from icevirt.objects.opening import open_source
from icevirt_scanners.hdf5 import chunked, scanner
from icevirt_scanners.hdf5.hierarchy import _links_of
from icevirt_scanners.hdf5.raw import header, heaps, space
from icevirt_scanners.hdf5.raw import header as superblock
from icevirt_scanners.hdf5.raw.attributes import list_attributes
from icevirt_scanners.hdf5.raw.header import RawFile
from icevirt_scanners.hdf5.raw.links import HARD, links_of
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError
from scanners.materialise import materialise

FORMATS = {
    "default": {},
    "default, order tracked": {"track_order": True},
    "latest": {"libver": "latest"},
    "latest, order tracked": {"libver": "latest", "track_order": True},
    "paged": {"fs_strategy": "page", "fs_page_size": 4096},
    "behind a user block": {"userblock_size": 1024},
}


@pytest.fixture(autouse=True)
def doubt(monkeypatch):
    """Whether edge chunks are filtered only the header tells; libhdf5 is never asked."""
    monkeypatch.setattr(chunked, "_may_leave_edges", lambda _: True)


def by_libhdf5(path, monkeypatch, **how):
    """Scan a file without the reader of its bytes."""
    with monkeypatch.context() as patched:
        patched.setattr(scanner.RawFile, "of", lambda *_, **__: None)
        return scanned(path, **how)


def scanned(path, **how):
    """Scan a file; an error of ours is an answer, too."""
    try:
        return scan_file(path, **grouped(how))
    except IcevirtError as error:
        return type(error), str(error)


# h5py does not say whether edge chunks are filtered, so those that could lie bare are stored
EDGES_UNTOLD = {"shuffle_only", "shuffle_only_latest", "shuffle_u1", "early_allocation"}


@pytest.mark.ci
@pytest.mark.parametrize("name", hdf5_cases.CASES)
def test_odd_files_are_described_alike_from_their_bytes(name, tmp_path, monkeypatch):
    path = tmp_path / "file.nc"
    hdf5_cases.CASES[name].write(path)
    known = scanned(path, drop_variables=hdf5_cases.CASES[name].drop)
    arrays = () if isinstance(known, tuple) else known.arrays
    own = {dimension for array in arrays for dimension in array.dimension_names}
    for concat_dim in (None, *sorted({"time", "phony_dim_0"} & own or {"time"})):
        how = {"concat_dim": concat_dim, "drop_variables": hdf5_cases.CASES[name].drop}
        ours, theirs = scanned(path, **how), by_libhdf5(path, monkeypatch, **how)
        if isinstance(theirs, tuple) and "a chunk index that cannot be read" in theirs[1]:
            continue  # libhdf5 lists its chunks wrongly
        if name in EDGES_UNTOLD and any(each.code == "chunks-stored" for each in theirs.findings):
            for mine, other in zip(ours.arrays, theirs.arrays, strict=True):
                assert materialise(mine).tobytes() == materialise(other).tobytes()
            continue
        assert ours == theirs, concat_dim


def test_real_files_are_described_alike_from_their_bytes(sample_data, monkeypatch):
    known = 0
    for path in sorted(sample_data.rglob("*.nc")):
        if path.read_bytes()[:4] == b"\x89HDF":
            known += 1
            assert scanned(path) == by_libhdf5(path, monkeypatch), path
    assert known


def write(path, **how):
    """Write what most archives hold: scales, attributes, chunks, filters, an empty variable."""
    rng = np.random.default_rng(1)
    with h5py.File(path, "w", **how) as file:
        file["time"] = np.arange(6.0)
        file["time"].make_scale("time")
        for number in range(12):
            data = rng.integers(0, 9, (6, 40)).astype(">i2" if number % 2 else "f4")
            made = file.create_dataset(f"v{number}", data=data, chunks=(1, 40), compression="gzip")
            made.dims[0].attach_scale(file["time"])
            made.attrs["_FillValue"] = data.dtype.type(7)
            made.attrs["units"] = "K"
        file.create_dataset("never", (6, 4), "f8", fillvalue=3.5)
        file.create_dataset("g/scalar", data=np.float32(2.5))
        for number in range(30):
            file.attrs[f"history {number}"] = "made " * number


@pytest.mark.parametrize("form", FORMATS)
def test_a_usual_file_is_described_without_libhdf5(form, tmp_path, monkeypatch, opened):
    path = tmp_path / "file.h5"
    write(path, **FORMATS[form])
    found = scan_file(path)
    if "user block" not in form:
        assert not opened
    assert found == by_libhdf5(path, monkeypatch)
    assert opened


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("count", [0, 1, 9, 300, 3000])
def test_the_links_of_a_group_stand_in_the_order_that_libhdf5_gives_them(count, form, tmp_path):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", **FORMATS[form]) as file:
        for number in range(count):
            file.create_group(f"a group whose number is {number * 7919 % count}")
        for number in range(count // 2):
            del file[f"a group whose number is {number}"]
        file["soft"] = h5py.SoftLink("/nowhere")
    with open_source(path) as source, h5py.File(path) as file:
        raw = RawFile.of(source, base=file.userblock_size)
        root = h5o.open(file.id, b"/")
        assert raw.root == h5o.get_info(root).addr
        found = links_of(raw.header(raw.root).messages, raw.space)
        wanted = _links_of(root)
    assert [link.name for link in found] == [name for name, _, _ in wanted]
    hard = [link.address for link in found if link.kind == HARD]
    assert hard == [address for _, kind, address in wanted if kind == h5py.h5l.TYPE_HARD]


@pytest.mark.ci
@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("form", ["default", "latest, order tracked"])
def test_damaged_links_and_attributes_are_reported_or_left_to_libhdf5(
    form, sealed, tmp_path, monkeypatch
):
    """Blocks with a checksum are believed only where it fits; without one none leaves the file."""
    path = tmp_path / "file.h5"
    write(path, **FORMATS[form])
    with open_source(path) as source:
        raw = RawFile.of(source, base=0)
        wanted = links_of(raw.header(raw.root).messages, raw.space)
    if not sealed:
        for module in (heaps, header, space, superblock):
            monkeypatch.setattr(module, "check_sum", lambda block: None)
    data = path.read_bytes()
    dice, understood = random.Random(3), 0
    for _ in range(200):
        flipped = bytearray(data)
        for _ in range(1 if sealed else dice.choice([1, 30, 300])):
            flipped[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        with open_source(path) as source, suppress(NotUnderstoodError):
            raw = RawFile.of(source, base=0)
            found = raw.header(raw.root) if raw is not None else None
            if found is not None:
                links = links_of(found.messages, raw.space)
                list_attributes(found, unread=())
                understood += 1
                assert "latest" not in form or not sealed or links == wanted
    assert understood > 25


def test_a_file_cut_short_or_still_written_is_libhdf5s_to_judge(tmp_path):
    path = tmp_path / "file.h5"
    for form in FORMATS.values():
        write(path, **form)
        with open_source(path) as source, h5py.File(path) as file:
            base = file.userblock_size
            assert RawFile.of(source, base=base).root > 0
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 1)
        with open_source(path) as source:
            raw = RawFile.of(source, base=base)
            with pytest.raises(NotUnderstoodError, match="cut short"):
                raw.root  # noqa: B018 - it looks when asked
    with h5py.File(path, "w", libver="latest") as file:
        file["d"] = np.arange(3)
        file.swmr_mode = True
        copy = tmp_path / "copy.h5"
        copy.write_bytes(path.read_bytes())
    with open_source(copy) as source, pytest.raises(NotUnderstoodError, match="open for writing"):
        RawFile.of(source, base=0).root  # noqa: B018
