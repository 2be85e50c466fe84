"""Sidecars are read in place of headers, and give what headers give; a wrong one is an error."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import InvalidInputError, ScanError, UnsupportedError
from icevirt.objects.source import LocalSource
from icevirt.objects.source_lists.listing import list_sources
from icevirt_scanners.grib import by_sidecar
from scanners.grib.grib_files import ACCUMULATED, GRID, WRITERS, find_section, message, several
from scanners.grib.grib_files import put as put_octets

LEVELS = (1000, 925, 850, 700, 600, 500, 400, 300)


def fields(lead, grid=GRID):
    """Yield the messages of a lead: two parameters on levels, and windows that change."""
    for name in ("t", "u"):
        for level in LEVELS:
            yield message(
                "regular_ll_pl_grib2",
                shortName=name,
                level=level,
                dataDate=20240101,
                forecastTime=lead,
                values=np.arange(12.0) * level + lead,
                **{key: value for key, value in grid.items() if "Degrees" in key},
            )
    for begin in dict.fromkeys((0, lead - lead % 6)):
        if begin < lead:
            window = {"forecastTime": begin, "lengthOfTimeRange": lead - begin}
            yield message(**ACCUMULATED, shortName="tp", dataDate=20240101, **window)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(by_sidecar, "_known", type(by_sidecar._known)())


@pytest.fixture
def reads(monkeypatch):
    """The ranges that are read of files."""
    found, real = [], LocalSource.read

    def read(source, offset, length):
        body = real(source, offset, length)
        found.append((source.file.url.rpartition("/")[2], len(body)))
        return body

    monkeypatch.setattr(LocalSource, "read", read)
    return found


def put(folder, name, bodies, writer="wgrib2"):
    write, pattern = WRITERS[writer]
    (folder / f"{name}.grib2").write_bytes(b"".join(bodies))
    (folder / pattern.format(name)).write_text("\n".join(write(bodies)) + "\n")
    return folder / f"{name}.grib2"


def described(path, use="auto"):
    scanned = scan_file(path, scan_options={"sidecar": use})
    return replace(scanned, findings=())


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_a_forecast_are_described_as_by_their_headers(writer, tmp_path, reads):
    for lead in (6, 12, 9, 15, 12):
        path = put(tmp_path, f"f{lead}", [*fields(lead)], writer)
        reads.clear()
        found = described(path)
        of_file = [length for name, length in reads if name == path.name]
        assert found == described(path, "ignore"), lead
        if lead == 15:  # a kind that is known: the file's begin, and some messages
            assert len(of_file) <= 10


def test_a_list_may_say_no_steps(tmp_path):
    """Headers say them then."""
    for lead in (6, 12, 18):
        path = put(tmp_path, f"f{lead}", [*fields(lead)], "ECMWF")
        listed = tmp_path / f"f{lead}.index"
        listed.write_text(re.sub('"step": "[0-9]+"', '"fcmonth": "1"', listed.read_text()))
        assert described(path, "require") == described(path, "ignore")


def test_a_lead_with_other_fields_is_a_kind_of_its_own(tmp_path):
    put(tmp_path, "a", [*fields(6)])
    for lead in (6, 9):
        path = put(tmp_path, f"f{lead}", [*fields(lead)])
        assert described(path) == described(path, "ignore")


def test_any_octet_of_a_header_that_another_file_of_the_kind_has_not_is_noticed(tmp_path):
    bodies = [*fields(6)]
    described(put(tmp_path, "a", bodies))  # all of its messages are as long as another one
    put(tmp_path, "b", bodies)
    raw, at = bytearray(b"".join(bodies)), len(bodies[0])
    refused = 0
    for octet in range(at, at + len(bodies[1]), 4):
        changed = raw.copy()
        changed[octet] ^= 1
        (tmp_path / "b.grib2").write_bytes(changed)
        try:
            found = described(tmp_path / "b.grib2")
        except ScanError:
            refused += 1
        else:
            assert found == described(tmp_path / "b.grib2", "ignore"), octet - at
    assert 10 < refused < len(bodies[1]) / 4


def test_a_statistic_over_several_ranges_is_refused_in_a_later_file_too(tmp_path):
    described(put(tmp_path, "a", [*fields(9)]))
    *bodies, last = fields(15)
    # octet 42 of template 4.8: the number of ranges
    assert last[find_section(last, 4) + 41] == 1
    path = put(tmp_path, "b", [*bodies, last])
    path.write_bytes(b"".join([*bodies, put_octets(last, 4, 42, b"\2")]))
    for use in ("ignore", "auto"):
        with pytest.raises(UnsupportedError, match="other than one range of times"):
            described(path, use)


def test_another_grid_under_the_same_words_is_noticed(tmp_path):
    described(put(tmp_path, "a", [*fields(6)]))
    other = GRID | {
        "longitudeOfFirstGridPointInDegrees": 10,
        "longitudeOfLastGridPointInDegrees": 40,
    }
    bodies = [*fields(6, other)][: 2 * len(LEVELS)]
    first = [*fields(6)][: 2 * len(LEVELS)]
    described(put(tmp_path, "b", first))
    path = put(tmp_path, "c", bodies)
    assert described(path) == described(path, "ignore")


def change(lines, **keys):
    """Return a list of ECMWF's with other values."""
    return [json.dumps(json.loads(line) | keys) for line in lines]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("odd", [2, 9])
@pytest.mark.parametrize(("bits", "is_constant"), [(4, False), (25, True)])
def test_bits_that_the_codec_reads_wrongly_are_noticed_in_later_files(
    bits, is_constant, odd, writer, tmp_path
):
    """Where accumulations grow, their bits do; at the first lead they are constant."""
    values = np.random.default_rng(0).random(12)

    def lead(step, wide):
        for n, each in enumerate(range(100, 1800, 100)):
            how = {"level": each, "forecastTime": step, "values": values * (n + 1)}
            how |= {"bitsPerValue": bits if n == wide else 16, "packing": "grid_ccsds"}
            if is_constant and step == 6 and n == odd:
                how |= {"values": 0, "packing": "grid_simple"}
            yield message("regular_ll_pl_grib2", shortName="t", **how)

    assert described(put(tmp_path, "a", [*lead(6, None)], writer)).arrays
    path = put(tmp_path, "b", [*lead(12, odd)], writer)
    for use in ("ignore", "auto"):
        with pytest.raises(UnsupportedError, match=f"packing 5.42 of {bits} bits a value"):
            described(path, use)


@pytest.mark.parametrize("packing", ["grid_simple", "grid_complex"])
def test_a_service_that_packs_all_fields_anew_is_noticed(packing, tmp_path):
    """No field of the first file is of CCSDS, so that five messages of the next are looked at."""

    def lead(step, packing, wide=None):
        for n in range(20):
            how = {"level": 1000 - 10 * n, "forecastTime": step, "packing": packing}
            values = np.random.default_rng(n).normal(size=1200).cumsum()
            how |= {"Ni": 40, "Nj": 30, "bitsPerValue": 4 if n == wide else 5 + n}
            yield message("regular_ll_pl_grib2", shortName="t", values=values, **how)

    first = [*lead(6, packing)]
    assert len({*map(len, first)}) == len(first)
    for wide in (3, 12, 17):
        by_sidecar._known.clear()
        assert described(put(tmp_path, "a", first)).arrays
        path = put(tmp_path, "b", [*lead(12, "grid_ccsds", wide)])
        with pytest.raises(UnsupportedError, match=r"packing 5.42 of 4 bits a value"):
            described(path)


# lists, by their writer, that are of another file, or of another version of it, and the error
WRONG = {
    "of a shorter file": ("wgrib2", lambda lines: lines[:-1], "leave out"),
    "of a longer file": (
        "wgrib2",
        lambda lines: [*lines, "99:99999999:d=2024010112:t:1 mb:6 hour fcst:"],
        "do not lie in a file",
    ),
    "of another run": (
        "wgrib2",
        lambda lines: [line.replace("d=20240101", "d=20240102") for line in lines],
        "another reference time",
    ),
    "of another lead": (
        "wgrib2",
        lambda lines: [line.replace("6 hour fcst", "9 hour fcst") for line in lines],
        "another end",
    ),
    "with another offset": (
        "wgrib2",
        lambda lines: [re.sub(r"^(4:\d+)", r"\g<1>0", line) for line in lines[:4]],
        "do not lie in a file|no message begins at",
    ),
    "without its first line": ("wgrib2", lambda lines: lines[1:], "leave out"),
    "without a line": ("wgrib2", lambda lines: [*lines[:5], *lines[6:]], "leave out"),
    "in another order": ("wgrib2", lambda lines: lines[::-1], "not in order"),
    "of more bytes than any": (
        "wgrib2",
        lambda lines: [*lines[:-1], lines[-1].replace(":", f":{10**20}:", 1)],
        "larger than any file|a line that wgrib2 does not write",
    ),
    "an HTML page": ("wgrib2", lambda _: ["<html>"], "a line that wgrib2 does not write"),
    "empty": ("wgrib2", lambda _: [], "it lists no messages"),
    "of JSON, without its first line": ("ECMWF", lambda lines: lines[1:], "leave out"),
    "of JSON, without a line": (
        "ECMWF",
        lambda lines: [*lines[:5], *lines[6:]],
        "leave out",
    ),
    "of JSON, without its last line": ("ECMWF", lambda lines: lines[:-1], "leave out"),
    "of JSON, of another lead": ("ECMWF", lambda lines: change(lines, step="9"), "another end"),
    "of JSON, of another run": (
        "ECMWF",
        lambda lines: change(lines, date="20240102"),
        "another reference time",
    ),
}


@pytest.mark.parametrize(
    "is_known", [False, True], ids=["first of its kind", "a kind that is known"]
)
@pytest.mark.parametrize(("writer", "change", "cause"), WRONG.values(), ids=WRONG)
def test_a_sidecar_that_contradicts_its_file_is_an_error(writer, change, cause, is_known, tmp_path):
    bodies = [*fields(6)]
    path = put(tmp_path, "a", bodies, writer)
    if is_known:
        described(path)
    sidecar = tmp_path / WRITERS[writer][1].format("a")
    sidecar.write_text("\n".join(change([*WRITERS[writer][0](bodies)])))
    with pytest.raises(ScanError, match=f"the sidecar contradicts its file: .*{cause}") as caught:
        described(path)
    assert "sidecar" in str(caught.value.do)
    assert described(path, "ignore").arrays


def swap(found, one=1, other=2):
    """Return a list with two entries exchanged."""
    found = [*found]
    found[one], found[other] = found[other], found[one]
    return found


@pytest.mark.parametrize("writer", WRITERS)
def test_a_list_that_says_something_else_of_the_same_offsets_changes_nothing(writer, tmp_path):
    """Names come from headers: a list of the file before two messages changed places, and later."""
    before = [*fields(6)]
    after = swap(before)
    described(put(tmp_path, "a", before, writer))
    assert [*map(len, before)] == [*map(len, after)]
    path = put(tmp_path, "b", before, writer)
    path.write_bytes(b"".join(after))
    assert described(path) == described(path, "ignore")


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_of_bulletins_is_read_with_its_list(writer, tmp_path):
    bodies, heading, end = [*fields(6)], b"HTAC00 ECMF 010000\r\r\n", b"\r\r\n\x03"
    each = len(heading) + len(end)
    path = put(tmp_path, "a", bodies, writer)
    sidecar = tmp_path / WRITERS[writer][1].format("a")
    lines = sidecar.read_text().splitlines()
    for number, line in enumerate(lines):
        more = len(heading) + number * each
        if writer == "ECMWF":
            held = json.loads(line)
            lines[number] = json.dumps(held | {"_offset": held["_offset"] + more})
        else:
            first, offset, rest = line.split(":", 2)
            lines[number] = f"{first}:{int(offset) + more}:{rest}"
    sidecar.write_text("\n".join(lines))
    path.write_bytes(b"".join(heading + body + end for body in bodies))
    for use in ("require", "ignore"):
        scanned = scan_file(path, scan_options={"sidecar": use})
        assert "bytes-between" in {each.code for each in scanned.findings}
    assert described(path) == described(path, "ignore")


def test_fields_of_one_message_have_lines_of_their_own_in_a_list(tmp_path):
    """NOAA numbers winds as 2.1 and 2.2, at one offset."""
    one, u, v = (message(shortName=name) for name in ("2t", "10u", "10v"))
    path = put(tmp_path, "a", [one, several(u, v)])
    start = f":{len(one)}:d=2007032312:"
    first = (tmp_path / "a.grib2.idx").read_text().splitlines()[0]
    lines = [f"2.{n}{start}{name}:10 m above ground:anl:" for n, name in ((1, "UGRD"), (2, "VGRD"))]
    (tmp_path / "a.grib2.idx").write_text("\n".join([first, *lines]) + "\n")
    options = {"variable_policy": {"v10": "native"}}
    found, expected = (
        scan_file(path, scan_options=options | {"sidecar": use}) for use in ("require", "ignore")
    )
    assert found == expected
    assert {"/t2m", "/u10", "/v10"} <= {array.path for array in found.arrays}


def test_a_line_for_a_message_of_several_fields_is_an_error(tmp_path):
    one, u, v = (message(shortName=name) for name in ("2t", "10u", "10v"))
    path = put(tmp_path, "a", [one, several(u, v)])
    with pytest.raises(ScanError, match="a message has several fields, and the sidecar lists one"):
        described(path)


def test_a_file_that_is_cut_short_is_an_error_with_its_sidecar_too(tmp_path):
    path = put(tmp_path, "a", [*fields(6)])
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ScanError, match=r"the file ends inside|do not lie in a file"):
        described(path)


def test_a_sidecar_can_be_required(tmp_path):
    (tmp_path / "a.grib2").write_bytes(message())
    with pytest.raises(ScanError, match="no sidecar") as caught:
        described(tmp_path / "a.grib2", "require")
    assert caught.value.facts["looked_for"] == ["a.grib2.idx", "a.index", "a.grib2.index"]
    with pytest.raises(InvalidInputError, match="no way to use sidecars"):
        described(tmp_path / "a.grib2", "maybe")


def test_a_directory_is_searched_for_messages_and_not_for_sidecars(tmp_path):
    path = put(tmp_path, "a", [*fields(6)])
    assert [file.url for file in list_sources([str(tmp_path)])] == [path.as_uri()]
