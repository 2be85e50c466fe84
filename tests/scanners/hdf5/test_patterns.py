"""Variables of files whose headers say the same are described once, and just as if by themselves."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError
from icevirt.objects.opening import open_source
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import record
from icevirt_scanners.hdf5 import attributes, chunked, patterns, scanner, variable, whole
from icevirt_scanners.hdf5.raw import header
from icevirt_scanners.hdf5.raw.header import RawFile
from long_forms import IS_LONG


def forget():
    """Forget all that earlier files left."""
    header._latest.clear()
    variable._known.clear()
    whole._known.clear()
    patterns._known = (patterns.ScannerOptions(), {})
    for known in (header._join, header._share, header._split_new, header._split_old):
        known.cache_clear()
    attributes._show_known.cache_clear()


def scanned(path, **how):
    """Return what a scan says of a file, without its name and times."""
    try:
        found = scan_file(path, **how)
    except IcevirtError as error:
        return type(error), error.what
    return repr((found.groups, found.arrays, found.findings, found.left_out, found.tally)).replace(
        str(path), ""
    )


def by_itself(path, **how):
    forget()
    return scanned(path, **how)


def day(path, number, *, history="", text="K", steps=4, names=("tas", "pr"), swapped=False):
    """Write a day as netCDF-C does: all is defined before the first value."""
    with netCDF4.Dataset(path, "w") as file:
        file.history = history
        for name, length in (("time", None), ("y", 6), ("x", 6)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",), chunksizes=(4,))
        time.units = "days since 2000-01-01"
        axis = file.createVariable("y", "f4", ("y",))
        for name in names:
            order = ("time", "x", "y") if swapped else ("time", "y", "x")
            made = file.createVariable(name, "f4", order, zlib=True, chunksizes=(1, 6, 6))
            made.setncatts({"units": text, "valid_range": np.float32([0, 1])})
        time[:] = np.arange(steps) + number
        axis[:] = np.arange(6)
        for name in names:
            noise = np.random.default_rng(number).integers(0, 9, (steps, 6, 6))
            file[name][:] = noise if number % 3 else 0
    return path


@pytest.fixture
def described(monkeypatch):
    """Count the variables that are described from their headers."""
    forget()
    paths = []
    describe = scanner.variable_of

    def counted(found, *rest, **more):
        paths.append(found.path)
        return describe(found, *rest, **more)

    monkeypatch.setattr(scanner, "variable_of", counted)
    return paths


def test_variables_of_many_files_are_described_once(described, tmp_path):
    """Chunks of other lengths stand elsewhere in each file, and so do their indices."""
    for number in range(25):
        path = day(tmp_path / f"{number}.nc", number)
        assert scan_file(path).array("tas").references.count(2) in (0, 4)
    assert sorted(described) == ["/pr", "/tas", "/time", "/y"]


def test_headers_that_moved_are_known_again(described, tmp_path):
    """An attribute of the root group that is longer moves all that stands behind it."""
    places = set()
    for number in range(8):
        path = day(tmp_path / f"{number}.nc", number, history="a" * 150 * (number + 1))
        with h5py.File(path) as file:
            places.add(h5py.h5o.get_info(file["tas"].id).addr)
        scan_file(path)
    assert len(places) > 1
    assert sorted(described) == ["/pr", "/tas", "/time", "/y"]


def test_a_file_like_others_is_read_twice_and_takes_few_calls(monkeypatch, tmp_path):
    """Counted, as times depend on the machine; the limit is a tenth above what was counted."""
    options = ScannerOptions(concat_dim="time")

    def recorded(number):
        path = day(tmp_path / f"{number}.nc", number, history=f"day {number:02}")
        with open_source(path) as source:
            reads.clear()
            sys.setprofile(lambda _, event, __: calls.append(event) if "call" in event else None)
            calls.clear()
            try:
                record(source, options)
            finally:
                sys.setprofile(None)

    reads, calls = [], []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *where: reads.append(where) or pread(*where))
    forget()
    for number in (1, 2, 4, 5, 7):
        recorded(number)
    assert len(reads) <= 2
    assert len(calls) <= 1785


def test_a_header_of_which_one_block_changed_is_parsed_in_that_block_only(monkeypatch, tmp_path):
    paths = [
        day(tmp_path / f"{number}.nc", number, history=f"day {number:02}") for number in range(9)
    ]
    wanted = [by_itself(path) for path in paths]
    forget()
    whole = []
    read = header._read
    monkeypatch.setattr(header, "_read", lambda *where: whole.append(where[1]) or read(*where))
    assert [scanned(path) for path in paths] == wanted
    root = max(set(whole), key=whole.count)
    assert whole.count(root) <= 2


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_header_of_other_blocks_than_the_one_before_is_read_all_the_same(libver, tmp_path):
    """At one address: of many attributes, of few, and of as many with other lengths."""
    paths = []
    for number, lengths in enumerate([[300] * 9, [3], [250] * 9, [300] * 3, [40] * 60, [300] * 9]):
        paths.append(tmp_path / f"{number}.h5")
        with h5py.File(paths[-1], "w", libver=libver) as file:
            file.create_dataset("x", data=np.arange(4))
            for at, length in enumerate(lengths):
                file.attrs[f"a{at}"] = np.bytes_("x" * length)
    forget()
    for path in [*paths, *reversed(paths)]:
        with open_source(path) as source:
            raw = RawFile.of(source, base=0)
            assert raw.header(raw.root) is not None
        texts = scanned(path)
        known = dict(header._latest)
        assert texts == by_itself(path)
        header._latest.update(known)


def by_themselves_and_in_a_row(paths):
    """Return what scans say of files that remember nothing, and of all of them one after another."""
    alone = [by_itself(path) for path in paths]
    forget()
    return alone, [scanned(path) for path in paths]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_file_that_is_almost_like_an_earlier_one_is_read_as_itself(libver, tmp_path):
    """The second lacks values of a variable that the first has; the third has other headers."""
    paths = []
    for written, units in ((True, "K"), (False, "K"), (False, "C")):
        paths.append(tmp_path / f"{len(paths)}.h5")
        with h5py.File(paths[-1], "w", libver=libver) as file:
            for name in "ab":
                made = file.create_dataset(name, (4, 8), "i4", chunks=(2, 8))
                if name == "a":
                    made.attrs["units"] = np.bytes_(units)
                if name == "a" or written:
                    made[:] = np.arange(32).reshape(4, 8)
    alone, in_a_row = by_themselves_and_in_a_row(paths)
    assert in_a_row == alone
    assert scan_file(paths[2]).array("a").attributes.values == {"units": "C"}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("others", [1, 2], ids=["plain", "two names of a type"])
def test_what_stands_where_another_file_has_a_named_type_is_found(others, libver, tmp_path):
    """The links of all files are equal, and so are the addresses that they lead to."""
    paths = []
    for kind in ("group", "type", "group", "type", "dataset"):
        paths.append(tmp_path / f"{len(paths)}.h5")
        with h5py.File(paths[-1], "w", libver=libver) as file:
            file["a"] = np.dtype("f4")
            for number in range(1, others):
                file[f"b{number}"] = file["a"]
            file["z"] = np.dtype("i4") if kind == "type" else np.arange(4)
            if kind == "group":
                del file["z"]
                file["z/inside"] = np.arange(4)
    alone, in_a_row = by_themselves_and_in_a_row(paths)
    assert in_a_row == alone
    assert [scanned(path).count("ScannedArray(") for path in paths] == [1, 0, 1, 0, 1]


@pytest.mark.ci
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_no_damaged_byte_hides_behind_the_metadata_of_another_file(libver, tmp_path):
    """A file is read as by itself, whichever byte of its metadata is another one."""
    path, other = tmp_path / "file.h5", tmp_path / "other.h5"
    for number, where in enumerate((other, path)):
        with h5py.File(where, "w", libver=libver) as file:
            file.attrs["history"] = np.bytes_(f"{number}")
            v = file.create_dataset("v", (4, 8), "f4", chunks=(2, 8), compression="gzip")
            v[:] = np.random.default_rng(number).integers(0, 9, (4, 8))
            file["x"] = np.arange(8.0)
            file["x"].make_scale("x")
            v.dims[1].attach_scale(file["x"])
    good = path.read_bytes()
    forget()
    scanned(other)
    rng = np.random.default_rng(1)
    for at in rng.permutation(len(good))[: 400 if IS_LONG else 50].tolist():
        damaged = bytearray(good)
        damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        alone = by_itself(path)
        forget()
        scanned(other)
        assert scanned(path) == alone, at


@pytest.mark.ci
def test_no_damaged_byte_hides_behind_the_chunks_of_other_files(tmp_path):
    """A file is read as by itself, whichever byte of its chunk indices is another one."""
    others = [day(tmp_path / f"{number}.nc", number) for number in range(2)]
    path = day(tmp_path / "9.nc", 9)
    good = path.read_bytes()
    begins = [at for at in range(len(good)) if good[at : at + 6] == b"TREE\1\0"]
    assert len(begins) == 3  # of time, tas and pr
    rng = np.random.default_rng(1)
    places = [at for begin in begins for at in range(begin, begin + 24 + 4 * 48)]
    for at in rng.permutation(places)[: 250 if IS_LONG else 40].tolist():
        damaged = bytearray(good)
        damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        alone = by_itself(path)
        if by_itself(path) != alone:
            continue  # a filter that seems to be skipped: libhdf5 shows what was in its memory
        forget()
        for other in (*others, *others):
            scanned(other)
        assert scanned(path) == alone, at


def test_chunks_that_stand_as_before_are_not_listed_again(tmp_path, monkeypatch):
    """From the third file on, an index is read in one block of the file."""
    paths = [day(tmp_path / f"{number}.nc", number) for number in range(4)]
    forget()
    for path in paths[:2]:
        scanned(path)
    listed = []
    monkeypatch.setattr(chunked, "list_chunks", lambda *_, **__: listed.append(1))
    alike = [scanned(path) for path in paths[2:]]
    monkeypatch.undo()
    assert not listed
    assert alike == [by_itself(path) for path in paths[2:]]


@pytest.mark.ci
@settings(
    deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "number": st.integers(0, 5),
                "history": st.sampled_from(["", "a", "b" * 300]),
                "text": st.sampled_from(["K", "C"]),
                "steps": st.sampled_from([1, 4, 5]),
                "names": st.sampled_from([("tas", "pr"), ("pr", "tas"), ("tas",)]),
                "swapped": st.booleans(),
            }
        ),
        min_size=2,
        max_size=5,
    ),
    st.lists(
        st.sampled_from(
            [
                {},
                {"concat_dim": "time"},
                {"scan_options": {"drop_variables": ["pr"]}},
                {"scan_options": {"variables": ["tas", "time"]}},
                {"scan_options": {"variable_policy": {"y": "reference"}}},
            ]
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_files_are_described_as_each_by_itself(tmp_path_factory, files, options):
    """In any order, with options that change between them."""
    folder = tmp_path_factory.mktemp("days")
    paths = [day(folder / f"{at}.nc", **how) for at, how in enumerate(files)]
    wanted = [[by_itself(path, **how) for how in options] for path in paths]
    forget()
    for _ in range(2):
        for path, texts in zip(paths, wanted, strict=True):
            assert [scanned(path, **how) for how in options] == texts
    for how, texts in zip(options, zip(*wanted, strict=True), strict=True):
        assert tuple(scanned(path, **how) for path in paths) == texts


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_dimensions_that_only_the_heap_tells_apart_are_distinguished(libver, tmp_path):
    """The headers of both files are equal, byte by byte; the lists of scales are not."""
    headers = []
    for at, order in enumerate(["yx", "xy"]):
        path = tmp_path / f"{at}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            made = file.create_dataset("v", data=np.zeros((4, 4)))
            for name in "yx":
                file[name] = np.arange(4.0)
                file[name].make_scale(name)
            for axis, name in enumerate(order):
                made.dims[axis].attach_scale(file[name])
            address = h5py.h5o.get_info(made.id).addr
        with open(path, "rb") as file:
            file.seek(address)
            headers.append((address, file.read(512)))
    assert headers[0][0] == headers[1][0]
    forget()
    for _ in range(2):
        found = [scan_file(tmp_path / f"{at}.h5").array("v").dimension_names for at in (0, 1)]
        assert found == [("y", "x"), ("x", "y")]


def test_findings_belong_to_their_file(tmp_path):
    """A file about whose variables something is said is no pattern for others, nor has it one."""
    for number in range(3):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("time", None)
            for name, length in (("a", 3), ("b", 1)):  # b is shorter than its dimension
                file.createVariable(name, "f4", ("time",))[:length] = number
    texts = [by_itself(tmp_path / f"{number}.nc") for number in range(3)]
    assert all("shorter-than-dimension" in text for text in texts)
    forget()
    assert [scanned(tmp_path / f"{number}.nc") for number in range(3)] == texts


def test_no_more_is_kept_than_may_be_and_no_file_stays_open(tmp_path):
    forget()
    for number in range(3 * patterns._REMEMBERED):
        names = [f"v{number}{letter}" for letter in "ab"]
        scan_file(day(tmp_path / "day.nc", number, names=names))
    _, known = patterns._known
    assert 0 < len(known) <= patterns._REMEMBERED
    for pattern in known.values():
        for _, like in pattern.variables:
            assert (like.header, like.placed, like.handle._file) == (None, None, None)
    assert len(whole._known) <= whole._REMEMBERED
    assert len(header._latest) <= header._HEADERS


def test_threads_with_other_options_share_nothing_wrong(tmp_path):
    paths = [day(tmp_path / f"{number}.nc", number) for number in range(6)]
    ways = [{}, {"concat_dim": "time"}, {"scan_options": {"drop_variables": ["pr"]}}]
    wanted = {(path, at): by_itself(path, **how) for path in paths for at, how in enumerate(ways)}
    forget()
    jobs = [*wanted] * 5
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda job: scanned(job[0], **ways[job[1]]), jobs)
    assert list(found) == [wanted[job] for job in jobs]


def test_values_behind_the_end_of_a_file_are_noticed_where_its_headers_are_known(tmp_path):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["v"] = np.arange(1000.0)
    forget()
    whole_one = scanned(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)
    assert scanned(path) == by_itself(path) != whole_one


def test_types_that_stand_elsewhere_in_the_file_are_compared(tmp_path):
    """The headers of the variables are equal: only the types differ to which they point."""
    paths = []
    for name in ("<f4", "<i4", ">f4", "<u4"):
        paths.append(tmp_path / f"{len(paths)}.h5")
        with h5py.File(paths[-1], "w") as file:
            file["type"] = np.dtype(name)
            made = file.create_dataset("x", (10,), dtype=file["type"], chunks=(5,))
            made[:] = np.arange(10)
            made.attrs.create("limit", np.array(3), dtype=file["type"])
    forget()
    in_a_row = [scanned(path) for path in paths]
    assert in_a_row == [by_itself(path) for path in paths]
    assert len({text.partition("fill_value")[0] for text in in_a_row}) == 4
