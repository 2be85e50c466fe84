"""NetCDF-3 files that are cut, counted wrong, or lie: a clear error, in bounded time and memory."""

import random
import tracemalloc

import numpy as np
import pytest

from fixtures import netcdf3_cases as cases
from fixtures.netcdf3_cases import classic, listed, name, variable, word
from icevirt.errors import IcevirtError, ScanError, UnsupportedError
from icevirt.objects.opening import open_source
from icevirt.scan import registry
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import combine
from icevirt_scanners.netcdf3 import header
from icevirt_scanners.netcdf3.scanner import NetCDF3Scanner
from scanners.materialise import materialise


def scan(path, **options):
    with open_source(path) as source:
        how = ScannerOptions(strict=True, **options)
        return combine(NetCDF3Scanner().scan(source, how), how)


def file_of(tmp_path, content):
    path = tmp_path / "a.nc"
    path.write_bytes(content)
    return path


HUGE = 2**31 - 1
X = [(b"x", 4)]
TX = [(b"t", 0), (b"x", 4)]
LIES = {
    "a tag of nothing": (b"CDF\x01" + word(0) + word(7) + word(0), "tag 7 where 10"),
    "a count without a tag": (b"CDF\x01" + word(0) + word(0) + word(3), "tag 0 where 10"),
    "more dimensions than bytes": (
        b"CDF\x01" + word(0) + word(10) + word(HUGE) + bytes(100),
        "a list of 2147483647 items",
    ),
    "a long name": (
        b"CDF\x01" + word(0) + word(10) + word(1) + word(HUGE) + bytes(8),
        "inside its",
    ),
    "an empty name": (classic([(b"", 4)], []), "a name is empty"),
    "a type of CDF-5 in a classic file": (
        classic(X, [variable(b"v", [0], 10, 200)]) + bytes(500),
        "a type of number 10",
    ),
    "a type of number 0": (classic(X, [variable(b"v", [0], 0, 200)]) + bytes(500), "number 0"),
    "no such dimension": (
        classic(X, [variable(b"v", [1], 4, 200)]) + bytes(500),
        "a dimension that does not exist",
    ),
    "records inside of records": (
        classic(TX, [variable(b"v", [1, 0], 4, 200)], records=2) + bytes(500),
        "records inside of records",
    ),
    "two record dimensions": (classic([(b"t", 0), (b"u", 0)], []) + bytes(50), "two record"),
    "values inside the header": (
        classic(X, [variable(b"v", [0], 4, 20)]) + bytes(500),
        "begins inside the header",
    ),
    "two variables in one place": (
        classic(X, [variable(b"v", [0], 4, 200), variable(b"w", [0], 4, 212)]) + bytes(500),
        "/v and /w overlap",
    ),
    "two variables in one place of the record": (
        classic(TX, [variable(b"v", [0, 1], 4, 200), variable(b"w", [0, 1], 4, 208)], records=2)
        + bytes(500),
        "/v and /w overlap",
    ),
    "a block among the records": (
        classic(
            TX,
            [variable(v, [0, 1], 4, n) for v, n in ((b"v", 200), (b"w", 216))]
            + [variable(b"f", [1], 4, 250)],
            records=5,
        )
        + bytes(500),
        "the records and /f overlap",
    ),
    "variables of a record far apart": (
        classic(TX, [variable(v, [0, 1], 4, n) for v, n in ((b"v", 300), (b"w", 600))], records=2)
        + bytes(999),
        "longer than its variables",
    ),
    "huge records, none of them there": (
        classic(
            [(b"t", 0), *((d, HUGE) for d in (b"x", b"y"))], [variable(b"v", [0, 1, 2], 4, 200)]
        )
        + bytes(500),
        "a record of /v has",
    ),
}


@pytest.mark.parametrize(("content", "message"), LIES.values(), ids=LIES)
def test_a_header_that_cannot_be_is_refused(content, message, tmp_path):
    path = file_of(tmp_path, content)
    with pytest.raises(ScanError, match=message) as caught:
        scan(path)
    assert caught.value.facts["file"] == path.as_uri()


def test_a_header_longer_than_any_is_refused_without_reading_it(tmp_path, monkeypatch):
    monkeypatch.setattr(header, "LONGEST", 1000)
    monkeypatch.setattr(header, "_FIRST", 100)
    long = b"CDF\x01" + word(0) + word(10) + word(1) + name(b"x" * 2000) + word(4)
    with pytest.raises(ScanError, match="a header longer than 1000 bytes"):
        scan(file_of(tmp_path, long + bytes(3000)))


def test_a_file_cut_anywhere_names_the_variable_or_the_header(tmp_path):
    data = cases.write(tmp_path / "b.nc", "fixed", "NETCDF3_CLASSIC").read_bytes()
    size = header.parse(data, len(data)).size
    for end in range(4, len(data) - 3, 12):
        with pytest.raises(ScanError) as caught:
            scan(file_of(tmp_path, data[:end]))
        assert ("variable" in caught.value.facts) == (end >= size)
        assert "etch it again" in str(caught.value)


def test_padding_that_is_missing_at_the_end_is_no_damage(tmp_path):
    """The last record of a writer that stopped behind its last value."""
    path = tmp_path / "a.nc"
    data = cases.write(path, "large_records", "NETCDF3_CLASSIC").read_bytes()
    wanted = materialise(scan(path).array("i2"))
    path.write_bytes(data[:-2])  # 331 shorts are padded by two bytes
    np.testing.assert_array_equal(materialise(scan(path).array("i2")), wanted)
    path.write_bytes(data[:-3])
    with pytest.raises(ScanError, match=r"ends before the values.*'/i2'"):
        scan(path)


@pytest.mark.parametrize("case", ["records", "large_records", "one_short", "one_byte_and_blocks"])
@pytest.mark.parametrize("data_model", cases.FORMATS)
def test_a_streaming_count_is_taken_from_the_length_of_the_file(case, data_model, tmp_path):
    path = cases.write(tmp_path / "a.nc", case, data_model)
    data, wanted = path.read_bytes(), scan(path).arrays
    width = 8 if data_model.endswith("DATA") else 4
    open_ended = data[:4] + b"\xff" * width + data[4 + width :]
    path.write_bytes(open_ended)
    found = scan(path)
    assert [finding.code for finding in found.findings] == ["records-counted"]
    assert [a.shape for a in found.arrays] == [a.shape for a in wanted]
    for ours, theirs in zip(found.arrays, wanted, strict=True):
        assert ours.references.offset.tolist() == theirs.references.offset.tolist()
    path.write_bytes(open_ended[:-8])  # the record that is not complete does not count
    assert max(a.shape[0] for a in scan(path).arrays) < max(a.shape[0] for a in wanted)


def test_records_behind_those_the_header_counts_are_not_shown_but_reported(tmp_path):
    path = cases.write(tmp_path / "a.nc", "records", "NETCDF3_CLASSIC")
    data = path.read_bytes()
    path.write_bytes(data[:4] + word(3) + data[8:])
    scanned = scan(path)
    assert scanned.array("i4").shape == (3, 3)
    (finding,) = scanned.findings
    assert (finding.code, finding.severity) == ("records-beyond-count", "warning")
    path.write_bytes(data[:4] + word(5) + data[8:])
    with pytest.raises(ScanError, match="ends before the values"):
        scan(path)


def test_flipped_bits_raise_nothing_but_our_errors(tmp_path):
    dice = random.Random(11)
    for data_model in cases.FORMATS:
        data = cases.write(tmp_path / "b.nc", "records", data_model).read_bytes()
        for _ in range(150):
            flipped = bytearray(data)
            for _ in range(dice.randint(1, 4)):
                flipped[dice.randrange(4, len(data))] ^= 1 << dice.randrange(8)
            path = file_of(tmp_path, flipped)
            try:
                scanned = scan(path, concat_dim=dice.choice([None, "time", "x"]))
            except IcevirtError:
                continue
            for array in scanned.arrays:
                ends = array.references.offset + array.references.length
                assert not len(ends) or ends.max() <= max(len(data), len(array.references.inline))


def test_a_hostile_header_takes_little_memory(tmp_path):
    """A count of four billion records, and a thousand variables that all claim the same bytes."""
    dims = [(b"t", 0), (b"x", 1)]
    many = [variable(b"v%d" % n, [0, 1], 2, 100_000) for n in range(1000)]
    path = file_of(tmp_path, classic(dims, many, records=2**32 - 2) + bytes(200_000))
    tracemalloc.start()
    try:
        with pytest.raises(ScanError):
            scan(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_names_that_become_one_and_too_many_axes_are_refused_by_name(tmp_path):
    twice = classic(X, [variable(b"v", [0], 4, 200), variable(b"v", [0], 4, 216)]) + bytes(500)
    path = file_of(tmp_path, twice)
    with (
        open_source(path) as source,
        pytest.raises(UnsupportedError, match=r"the same name.*drop_variables=\['/v'\]"),
    ):
        registry.scan(source)
    deep = classic([(b"x", 1)], [variable(b"v", [0] * 33, 4, 300)]) + bytes(500)
    with pytest.raises(UnsupportedError, match=r"more than 32 dimensions.*'/v'"):
        scan(file_of(tmp_path, deep))
    assert scan(file_of(tmp_path, deep), drop_variables=("v",)).arrays == ()


def test_names_with_slashes_and_text_that_is_not_utf_8_are_reported(tmp_path):
    text = name(b"where") + word(2) + word(3) + b"\xb0Cx\0"
    entry = name(b"a/b") + word(1) + word(0) + listed(12, [text]) + word(4) + word(0) + word(200)
    scanned = scan(file_of(tmp_path, classic(X, [entry]) + bytes(500)))
    assert scanned.array("a%2Fb").attributes.values == {"where": "°Cx"}
    assert [finding.code for finding in scanned.findings] == ["renamed", "attribute-latin1"]


def test_what_must_be_stored_and_is_too_large_is_refused(tmp_path):
    path = cases.write(tmp_path / "a.nc", "records", "NETCDF3_CLASSIC")
    assert not scan(path, max_native_bytes=10).array("time").whole
    with pytest.raises(UnsupportedError, match=r"too large.*'/time'"):
        scan(path, max_native_bytes=10, concat_dim="time")


def test_a_group_is_refused(tmp_path):
    path = cases.write(tmp_path / "a.nc", "empty", "NETCDF3_CLASSIC")
    with pytest.raises(ScanError, match="NetCDF-3 has no groups"):
        scan(path, group="/g")


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path):
    path = cases.write(tmp_path / "a.nc", "records", "NETCDF3_CLASSIC")
    with open_source(path) as source:
        path.write_bytes(path.read_bytes()[:-60])
        with pytest.raises(ScanError, match="became shorter"):
            NetCDF3Scanner().scan(source, ScannerOptions())
