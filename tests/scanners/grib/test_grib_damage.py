"""Damaged files of GRIB are errors that name file, message and offset; nothing is lost quietly."""

import pickle
import random

import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError, ScanError
from icevirt_scanners.grib.sections import _NEXT, DamagedMessageError
from long_forms import IS_LONG
from scanners.grib.grib_files import ACCUMULATED, change_length, find_section, message, put
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
    found = scan(tmp_path / "a.grib2", BODY + bytes(1000))
    assert "bytes-between" in {each.code for each in found.findings}


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
    assert len(_NEXT) == 8
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
