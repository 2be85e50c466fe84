"""Of a large file on a server only headers are fetched: how many bytes, by how many requests."""

import re

import eccodes
import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.objects.opening import open_source
from icevirt.objects.source import RemoteSource
from icevirt_scanners.grib import by_sidecar
from icevirt_scanners.grib.sections import read_file
from scanners.grib.grib_files import WRITERS, change_length, message

LEVELS, KIB = 16, 1024
BEGIN = 512 * KIB  # of a file, which is fetched before it is known what it is
GRID = {
    "Ni": 1000,
    "Nj": 500,
    "latitudeOfLastGridPointInDegrees": 0.04,
    "longitudeOfLastGridPointInDegrees": 29.97,
    "iDirectionIncrementInDegrees": 0.03,
    "jDirectionIncrementInDegrees": 0.04,
}
LISTS = {"wgrib2": "a.grib2.idx", "ECMWF": "a.index"}


def with_local_section(body):
    """Put a section 2 into a message, so that its headers take more than those of most."""
    body = body[:37] + (700).to_bytes(4, "big") + b"\2" + bytes(695) + body[37:]
    return body[:8] + len(body).to_bytes(8, "big") + body[16:]


def on_levels(body, lead):
    """Yield the message at a lead on all levels, with as many bytes more; most have other lengths."""
    handle = eccodes.codes_new_from_message(body)
    eccodes.codes_set(handle, "forecastTime", lead)
    for level in range(1, LEVELS + 1):
        eccodes.codes_set(handle, "level", level)
        yield change_length(eccodes.codes_get_message(handle), 7, level)
    eccodes.codes_release(handle)


@pytest.fixture(scope="module")
def leads():
    """The messages of two leads, 46 MB each: u has bitmaps, v has local sections."""
    values = np.random.default_rng(0).random(GRID["Ni"] * GRID["Nj"])
    found = {6: [], 9: []}
    for name in "tuv":
        how = {"shortName": name, "dataDate": 20240101, "bitsPerValue": 16, **GRID}
        body = message("regular_ll_pl_grib2", values=values, bitmap=name == "u", **how)
        for lead, bodies in found.items():
            made = on_levels(body, lead)
            bodies.extend(map(with_local_section, made) if name == "v" else made)
    return found


@pytest.fixture
def scan(leads, http_server, tmp_path, monkeypatch):
    """Scan a lead there, and here by headers; return requests, waits and bytes of the file."""
    monkeypatch.setattr(by_sidecar, "_known", type(by_sidecar._known)())
    waits, fetch = [], RemoteSource._bodies
    monkeypatch.setattr(
        RemoteSource, "_bodies", lambda self, ranges: waits.append(ranges) or fetch(self, ranges)
    )

    def run(lead, writer, **options):
        path, body = tmp_path / "a.grib2", b"".join(leads[lead])
        path.write_bytes(body)
        http_server.files.put(f"{lead}/a.grib2", body)
        if writer:
            text = "\n".join(WRITERS[writer][0](leads[lead]))
            http_server.files.put(f"{lead}/{LISTS[writer]}", text.encode())
        http_server.rules.clear()
        waits.clear()
        url, use = f"{http_server.url}/{lead}/a.grib2", "require" if writer else "ignore"
        far = scan_file(url, scan_options=options | {"sidecar": use})
        near = scan_file(path, scan_options=options | {"sidecar": "ignore"})
        assert [each.zarr_json() for each in far.arrays] == [
            each.zarr_json() for each in near.arrays
        ]
        for one, other in zip(far.arrays, near.arrays, strict=True):
            for column in ("index", "kind", "offset", "length", "inline"):
                found, wanted = (getattr(each.references, column) for each in (one, other))
                np.testing.assert_array_equal(found, wanted)
        asked = [
            tuple(map(int, re.findall(r"\d+", each.headers["range"])))
            for each in http_server.rules.requests
            if each.path.endswith("a.grib2")
        ]
        return len(asked), len(waits), sum(last + 1 - first for first, last in asked)

    return run


def test_a_file_without_a_sidecar_takes_a_small_request_for_each_piece(scan):
    requests, waits, size = scan(6, None)
    assert waits == requests - 1 <= 5 * LEVELS  # behind bitmaps and local sections there is more
    assert size <= BEGIN + 2 * KIB * 3 * LEVELS


@pytest.mark.parametrize("writer", LISTS)
def test_with_a_sidecar_headers_are_fetched_side_by_side(writer, scan):
    requests, waits, size = scan(6, writer)
    assert waits == 2  # the headers, and those that did not fit
    assert requests == 1 + 5 * LEVELS
    assert size <= BEGIN + 2 * KIB * 3 * LEVELS
    requests, waits, size = scan(9, writer)  # of a kind that is known: a sample
    assert waits <= 2
    assert requests <= 1 + 3 * 5
    assert size <= BEGIN + 16 * KIB


def test_many_small_messages_are_read_together(http_server):
    body = message(values=np.arange(5000.0), Ni=100, Nj=50, bitsPerValue=16)
    http_server.files.put("a.grib2", body * 3400)
    with open_source(f"{http_server.url}/a.grib2") as source:
        source.read_sparsely()
        fields = read_file(source)
    np.testing.assert_array_equal(fields.begin, np.arange(3400) * len(body))
    assert source.file.size > 32 << 20  # or it would be fetched whole
    assert source.requests < 60
    assert source.bytes_fetched < 1.1 * source.file.size


@pytest.mark.ci
def test_messages_that_are_decoded_are_fetched_side_by_side(scan):
    _, waits, size = scan(6, "wgrib2", variable_policy={"t": "native"}, variables=["t"])
    assert waits == 3  # headers by two
    assert size <= 17_000_000
