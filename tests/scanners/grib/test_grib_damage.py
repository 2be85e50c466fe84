"""Damaged files of GRIB are errors that name file, message and offset; nothing is lost quietly."""

import pickle
import random

import numpy as np
import pytest
import zarr

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError, ScanError, StorageError
from icevirt.scan import values
from icevirt.wire.grib import check_message
from icevirt_scanners.grib.by_eccodes import decode as stored_by_eccodes
from icevirt_scanners.grib.headers import NEXT
from icevirt_scanners.grib.sections import DamagedMessageError
from long_forms import IS_LONG
from scanners.grib.grib_files import (
    ACCUMULATED,
    MISSING,
    by_eccodes,
    change_length,
    find_section,
    message,
    put,
    several,
)
from scanners.materialise import materialise

BODY = message()


def scan(path, body):
    path.write_bytes(body)
    return scan_file(path)


DAMAGE = {
    "cut short": (BODY + BODY[:-1], "the file ends inside a message", 2, len(BODY)),
    "cut in its first section": (BODY + BODY[:12], "the file ends", 2, len(BODY)),
    "no end": (BODY[:-4] + b"7776", "does not end with 7777", 1, len(BODY) - 4),
    "HTML behind it": (BODY + b"<html>" * 99, "no GRIB message", 2, len(BODY)),
    "a length of 0": (BODY[:8] + bytes(8) + BODY[16:], "does not end with 7777", 1, 0),
    "a section too many": (
        BODY[:16] + BODY[16:37] + BODY[16:],
        "section 1 behind section 1",
        1,
        37,
    ),
    "a month that is none": (
        BODY[:30] + b"\x0d" + BODY[31:],
        "a reference time that is none",
        1,
        0,
    ),
}


@pytest.mark.parametrize(("body", "what", "number", "offset"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named_with_its_message_and_offset(body, what, number, offset, tmp_path):
    if "too many" in what or what.startswith("section 1"):
        body = body[:8] + len(body).to_bytes(8, "big") + body[16:]
    with pytest.raises(ScanError, match=what) as caught:
        scan(tmp_path / "a.grib2", body)
    facts = caught.value.facts
    assert (facts["message"], facts["offset"]) == (number, offset)
    assert facts["file"].endswith("a.grib2")


def test_bytes_between_messages_are_reported(tmp_path):
    found = scan(tmp_path / "a.grib2", BODY + b"a bulletin\r\r\n" + message(forecastTime=6))
    assert len(found.arrays[-1].references) == 2
    (said,) = [each for each in found.findings if each.code == "bytes-between"]
    assert f"13 bytes at {len(BODY)}" in said.message


HEADINGS = {
    "of a bulletin": b"\x01\r\r\n001\r\r\nHTAC00 ECMF 010000\r\r\n",
    "with a correction": b"HTAC00 ECMF 010000 CCA\r\r\n",
    "of a file of bulletins": b"0000018200\x01\r\r\nYRPA85 KWBC 011200\r\r\n",
    "of the NOAA's gateway": b"****0000000182****\nYRPA85 KWBC 011200\n",
}


@pytest.mark.parametrize("heading", HEADINGS.values(), ids=HEADINGS)
def test_a_file_of_bulletins_is_recognized(heading, tmp_path):
    bulletins = [heading + each + b"\r\r\n\x03" for each in (BODY, message(forecastTime=6))]
    found = scan(tmp_path / "a.bin", b"".join(bulletins))
    begin = len(heading)
    (references,) = [each.references for each in found.arrays if each.references.count(2)]
    assert sorted(references.offset.tolist()) == [begin, len(bulletins[0]) + begin]
    assert "bytes-between" in {each.code for each in found.findings}


@pytest.mark.parametrize("start", [b"a text about ", b"\0" * 40, b"HTAC00 ECMF 010000 "])
def test_a_signature_behind_something_else_is_not_one(start, tmp_path):
    with pytest.raises(ScanError, match="no scanner reads this file"):
        scan(tmp_path / "a.bin", start + BODY)


def test_padding_behind_the_last_message_is_nothing(tmp_path):
    found = scan(tmp_path / "a.grib2", BODY + bytes(127))
    assert "bytes-between" in {each.code for each in found.findings}


OTHERS = {
    "zeros": (bytes(128), "128 bytes that are no GRIB message (zeros)"),
    "many zeros": (bytes(99_999), "more than 65536 bytes that are no GRIB message (zeros)"),
    "a page": (b"<html>" * 99, "594 bytes that are no GRIB message (b'<html><html><htm')"),
    "ones": (b"\xff" * 200, "200 bytes that are no GRIB message (b'"),
}


@pytest.mark.parametrize("has_more", [False, True], ids=["the last one", "another one"])
@pytest.mark.parametrize(("other", "what"), OTHERS.values(), ids=OTHERS)
def test_what_stands_in_the_place_of_a_message_is_named(other, what, has_more, tmp_path):
    """A variable would lack a step, and nobody would know why."""
    with pytest.raises(ScanError) as caught:
        scan(tmp_path / "a.grib2", BODY + other + (BODY if has_more else b""))
    assert what in str(caught.value)
    assert (caught.value.facts["message"], caught.value.facts["offset"]) == (2, len(BODY))
    assert "grib_copy" in str(caught.value.do)


MAPPED = message(bitmap=True)
MISFITS = {
    "data cut short": (change_length(BODY, 7, -1), "12 values of 24 bits in a section 7 of 40"),
    "data of no value": (change_length(BODY, 7, -36), "in a section 7 of 5 bytes"),
    "data of a bitmap cut short": (change_length(MAPPED, 7, -1), "10 values of 24 bits"),
    "more bits than data": (put(BODY, 5, 20, b"\x19"), "12 values of 25 bits"),
    "fewer values than points": (put(BODY, 5, 6, b"\0\0\0\x0b"), "11 values for 12 points"),
    "more values than points": (put(BODY, 5, 6, b"\0\0\0\x0d"), "13 values for 12 points"),
    "more values than a bitmap has": (put(MAPPED, 5, 6, b"\0\0\0\x0d"), "13 values for 12"),
    "more points than values": (put(BODY, 3, 7, b"\0\0\0\x0d"), "12 values for 13 points"),
    "a bitmap cut short": (change_length(MAPPED, 6, -1), "a bitmap of 1 bytes for 12 points"),
    "a bitmap of another grid": (change_length(MAPPED, 6, 1), "a bitmap of 3 bytes for 12"),
    "packing cut short": (change_length(BODY, 5, -2), "a section 5 of 19 bytes"),
} | {
    f"fewer values than points, {packing}": (
        put(message(packing=packing), 5, 6, b"\0\0\0\x0b"),
        "11 values for 12 points",
    )
    for packing in ("grid_complex", "grid_ccsds", "grid_jpeg", "grid_ieee")
}


@pytest.mark.parametrize("policy", [{}, {"t2m": "native"}])
@pytest.mark.parametrize(("body", "what"), MISFITS.values(), ids=MISFITS)
def test_sections_that_do_not_fit_each_other_are_damage(body, what, policy, tmp_path):
    (tmp_path / "a.grib2").write_bytes(BODY + body)
    with pytest.raises(ScanError, match=what) as caught:
        scan_file(tmp_path / "a.grib2", scan_options={"variable_policy": policy})
    facts = caught.value.facts
    assert facts["message"] == 2
    assert facts["offset"] == len(BODY) + find_section(body, 7)


FIELD = 280 + np.random.default_rng(0).standard_normal(2400).cumsum()
WET = np.where(np.arange(2400) < 2300, np.abs(FIELD - 280), 0)  # the smallest at its end: zeros
LARGE = {
    "Ni": 60,
    "Nj": 40,
    "latitudeOfFirstGridPointInDegrees": 39,
    "longitudeOfLastGridPointInDegrees": 59,
    "iDirectionIncrementInDegrees": 1,
    "jDirectionIncrementInDegrees": 1,
}


def large(packing, values=FIELD, **keys):
    return message(packing=packing, values=values, **LARGE, **keys)


def cut_jpeg(body, end):
    """Return a message whose JPEG 2000 ends early, but for the mark of its end."""
    at = find_section(body, 7)
    shorter = change_length(body, 7, end)
    return put(shorter, 7, int.from_bytes(shorter[at : at + 4], "big") - 1, b"\xff\xd9")


JPEG, CCSDS = large("grid_jpeg"), large("grid_ccsds")
BROKEN = {
    "JPEG 2000 without its end": (change_length(JPEG, 7, -10), "its JPEG 2000 ends early"),
    "JPEG 2000 cut inside": (cut_jpeg(JPEG, -999), "its JPEG 2000 ends early"),
    "JPEG 2000 of another grid": (
        put(JPEG, 7, 5 + 9, (59).to_bytes(4, "big")),
        "2,360 points in its JPEG 2000 for 2,400 values",
    ),
    "no JPEG 2000": (put(JPEG, 7, 6, b"\0\0"), "a data section that is not JPEG 2000"),
    "CCSDS cut short": (change_length(CCSDS, 7, -40), "its data section ends early"),
    "zeros in CCSDS cut short": (
        change_length(large("grid_ccsds", WET), 7, -999),
        "its data section ends early",
    ),
    **{
        f"CCSDS with a bitmap cut by {more}": (
            change_length(large("grid_ccsds", bitmap=True, bitsPerValue=24), 7, -more),
            "its data section ends early",
        )
        for more in (40, 1500, 3000)
    },
    "complex packing cut short": (change_length(large("grid_complex"), 7, -40), "out of bounds"),
    "a bitmap of more ones": (put(MAPPED, 6, 7, b"\xff\xf0"), "12 ones for 10 values"),
    "a bitmap of no ones": (put(MAPPED, 6, 7, b"\0\0"), "0 ones for 10 values"),
    "ones behind a bitmap": (put(MAPPED, 6, 8, b"\xbf"), "13 ones for 10 values"),
}


def read(path, body):
    """Return values as readers of icevirt decode them."""
    array = scan(path, body).arrays[-1]
    return values.read(array, lambda _, begin, length: body[begin : begin + length])


@pytest.mark.parametrize(("body", "what"), BROKEN.values(), ids=BROKEN)
def test_what_a_scan_does_not_look_at_is_looked_at_before_it_is_decoded(body, what, tmp_path):
    with pytest.raises(ScanError, match=what):
        read(tmp_path / "a.grib2", body)


def test_bits_that_the_codec_reads_wrongly_are_no_values(tmp_path):
    """A file may be replaced behind a list of messages, or an adapter may refer to it."""
    array = scan(tmp_path / "a.grib2", message(packing="grid_ccsds", bitsPerValue=5)).arrays[-1]
    odd = put(message(packing="grid_ccsds", bitsPerValue=5), 5, 20, b"\3")
    with pytest.raises(ScanError, match=r"packing 5\.42 of 3 bits, which gribberish reads wrongly"):
        values.read(array, lambda _, begin, length: odd[begin : begin + length])


@pytest.mark.parametrize("packing", ["grid_jpeg", "grid_ccsds", "grid_complex", "grid_simple"])
@pytest.mark.parametrize("bitmap", [False, True])
def test_sound_fields_that_end_with_zeros_are_read(packing, bitmap, tmp_path):
    body = large(packing, WET, bitmap=bitmap)
    found = read(tmp_path / "a.grib2", body).reshape(-1)
    assert found[-1] == 0
    np.testing.assert_array_equal(found, by_eccodes(body).values)


@pytest.mark.parametrize(
    "packing",
    ["jpeg", "ccsds", "complex", "complex_spatial_differencing", "simple"],
)
def test_fields_that_miss_all_points_are_read(packing, tmp_path):
    """gribberish 1.9.0 does not return from the first, and may fail on complex packing."""
    how = {"bitsPerValue": 16, "packingType": f"grid_{packing}", **LARGE}
    body = message(values=np.full(FIELD.size, MISSING), bitmap=True, **how)
    begin = find_section(body, 5)
    assert not int.from_bytes(body[begin + 5 : begin + 9], "big")
    found = read(tmp_path / "a.grib2", body)
    assert np.isnan(found).all()
    assert found.size == FIELD.size
    icevirt.build(tmp_path / "a.grib2", tmp_path / "repo", executor="in-process")
    access = {"authorize_virtual_chunk_access": [f"file://{tmp_path}/"]}
    ds = icevirt.open(str(tmp_path / "repo"), **access)
    (name,) = ds.data_vars
    assert np.isnan(ds[name].values).all()
    session = icevirt.Repository.open(str(tmp_path / "repo"), **access).readonly_session("main")
    assert np.isnan(zarr.open_array(session.store, path=name, mode="r")[...]).all()


@pytest.mark.parametrize("packing", ["ccsds", "complex", "ieee", "jpeg", "png", "simple"])
def test_values_that_eccodes_stores_are_in_their_message(packing, tmp_path):
    """ecCodes 2.50.0 takes what is cut off for zeros, or reads the next field."""
    sound = large(f"grid_{packing}", shortName="2t")
    cut = change_length(sound, 7, -99)
    other = large("grid_simple", shortName="10u")
    options = {"variable_policy": {"t2m": "native"}}
    for body in (sound, several(other, sound)):
        (tmp_path / "a.grib2").write_bytes(body)
        array = scan_file(tmp_path / "a.grib2", scan_options=options).arrays[-1]
        np.testing.assert_array_equal(materialise(array).reshape(-1), by_eccodes(sound).values)
    for body in (cut, several(other, cut)):
        (tmp_path / "a.grib2").write_bytes(body)
        with pytest.raises(ScanError, match=r"damaged GRIB|cannot read a message") as caught:
            scan_file(tmp_path / "a.grib2", scan_options=options)
        assert caught.value.facts["message"] == 1


@pytest.mark.parametrize("extent", [0, 4, len(BODY)])
def test_a_message_whose_sections_lead_nowhere_is_not_followed_for_ever(extent):
    """A sidecar says where messages are of which no header was read."""
    broken = put(BODY, 3, 1, extent.to_bytes(4, "big"))
    with pytest.raises(ScanError, match="cannot read a message") as caught:
        stored_by_eccodes(broken, 0, file="a.grib2", number=7)
    assert caught.value.facts["message"] == 7


def test_jpeg_2000_that_is_cut_anywhere_is_not_given_to_the_codec():
    """gribberish 1.9.0 does not return from some of these."""
    check_message(JPEG)
    for more in range(1, len(JPEG) - find_section(JPEG, 7) - 8, 1 if IS_LONG else 97):
        with pytest.raises(ValueError, match="JPEG 2000"):
            check_message(change_length(JPEG, 7, -more))


def test_an_error_of_damaged_values_names_file_chunk_and_offset(tmp_path):
    broken, _ = BROKEN["a bitmap of more ones"]
    (tmp_path / "a.grib2").write_bytes(BODY + put(broken, 1, 17, b"\x0d"))
    repo, access = tmp_path / "repo", {"authorize_virtual_chunk_access": [f"file://{tmp_path}/"]}
    icevirt.build(tmp_path / "a.grib2", repo, executor="in-process")
    session = icevirt.Repository.open(str(repo), **access).readonly_session("main")
    with pytest.raises(StorageError, match="12 ones for 10 values") as caught:
        zarr.open_array(session.store, path="t_surface", mode="r")[...]
    facts = caught.value.facts
    assert (facts["chunk"], facts["offset"]) == ([1, 0, 0, 0], len(BODY))
    assert facts["location"].endswith("a.grib2")
    found = icevirt.verify(str(repo), executor="in-process", **access)
    assert [each.array for each in found.checked.differences] == ["/t_surface"]


def test_a_constant_field_has_no_data(tmp_path):
    for bitmap in (False, True):
        body = message(values=np.full(12, 7.0), bitmap=bitmap)
        at = find_section(body, 7)
        assert int.from_bytes(body[at : at + 4], "big") == 5
        values = materialise(scan(tmp_path / "a.grib2", body).arrays[-1])
        assert (np.isnan(values) | (values == 7)).all()


BODIES = (
    BODY,
    message(**ACCUMULATED, shortName="tp", lengthOfTimeRange=6, bitmap=True),
    message("regular_gg_sfc_grib2"),
    message("GRIB2", gridType="lambert", Nx=3, Ny=2, jScansPositively=1, Latin1InDegrees=30),
)


def starts(body):
    """Return the offsets of bytes of headers."""
    found, at = [*range(16)], 16
    while body[at : at + 4] != b"7777":
        length = int.from_bytes(body[at : at + 4], "big")
        kept = length if body[at + 4] in (1, 3, 4, 5) else 6
        found += range(at, at + kept)
        at += length
    assert len(NEXT) == 8
    return found


def test_any_byte_of_a_header_gives_a_description_or_our_error(tmp_path):
    """Two files of messages, one of which has another byte in a header; at night each byte."""
    chosen = random.Random(0)
    for body in BODIES:
        places = starts(body) if IS_LONG else chosen.sample(starts(body), 20)
        for at in places:
            for value in (0, 0x7F, 0xFF):
                turned = BODY + body[:at] + bytes([value]) + body[at + 1 :]
                try:
                    found = scan(tmp_path / "a.grib2", turned)
                except IcevirtError:
                    continue
                for array in found.arrays:
                    ends = array.references.offset + array.references.length
                    inside = array.references.kind == 2
                    assert (ends[inside] <= len(turned)).all()
                    places = array.references.index * np.array(array.chunk_shape, np.int64)
                    assert (places < np.array(array.shape)).all()


def test_the_cause_of_an_error_can_be_sent_to_another_process():
    """Some libraries pickle errors with their causes."""
    cause = pickle.loads(pickle.dumps(DamagedMessageError("the file ends", message=3, offset=9)))
    assert (cause.what, cause.message, cause.offset) == ("the file ends", 3, 9)
