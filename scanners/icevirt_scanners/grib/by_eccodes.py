"""Read values with ecCodes, the reference library of GRIB: to verify, and to store them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError, UnsupportedError

_MISSING = 1e34  # where a bitmap leaves a point out; no field holds it
# packings of which ecCodes 2.50.0 takes what a cut data section lacks for zeros, or reads behind it
_OPEN_ENDED = (2, 3, 42)
_PNG = (41, 40010)  # ecCodes ends the process where these are cut short
_MORE = 1024  # bytes that are put behind a section; a block of CCSDS has at most 256


@contextmanager
def _opened(message: bytes, part: int) -> Iterator[tuple[Any, Any]]:
    """Open a field of a message; ecCodes counts those of one message as messages of their own."""
    import eccodes

    if not part:
        handle = eccodes.codes_new_from_message(message)
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            file.write(message)
            file.seek(0)
            eccodes.codes_grib_multi_support_on()
            try:
                for at in range(part + 1):
                    handle = eccodes.codes_grib_new_from_file(file)
                    if at < part:
                        eccodes.codes_release(handle)
            finally:
                eccodes.codes_grib_multi_support_off()
    try:
        yield eccodes, handle
    finally:
        eccodes.codes_release(handle)


def decode(message: bytes, part: int, *, file: str, number: int) -> NDArray[np.float64]:
    """Return the values of a field in the order of its message; NaN where there is none.

    Raises:
        UnsupportedError: ecCodes is not installed.
        ScanError: It cannot decode them.
    """
    try:
        import eccodes
    except (ImportError, RuntimeError) as error:  # the latter where its library is missing
        raise UnsupportedError(
            "values of GRIB are read by ecCodes, which is not installed",
            do="Run `pip install eccodes`.",
            file=file,
        ) from error
    try:
        template, (begin, end) = _find_data(message, part)
        is_cut = template in _PNG and not _is_whole_png(message[begin + 5 : end])
        if not is_cut:
            found = _values(message, part)
        if template in _OPEN_ENDED:
            again = _values(_lengthen(message, begin, end), part)
            is_cut = not np.array_equal(found, again)
    except (ValueError, eccodes.CodesInternalError) as error:
        raise ScanError(
            "ecCodes cannot read a message",
            do="Fetch the file again, or leave it out.",
            file=file,
            message=number,
            cause=str(error),
        ) from error
    if is_cut:
        raise ScanError(
            "damaged GRIB: a data section ends before its values",
            do="Fetch the file again, or leave it out.",
            file=file,
            message=number,
        )
    return np.where(found == _MISSING, np.nan, found)


def _values(message: bytes, part: int) -> NDArray[np.float64]:
    with _opened(message, part) as (eccodes, handle):
        eccodes.codes_set(handle, "missingValue", _MISSING)
        found: NDArray[np.float64] = eccodes.codes_get_values(handle)
        return found


def _find_data(message: bytes, part: int) -> tuple[int, tuple[int, int]]:
    """Return the packing of a field, and where its data section begins and ends.

    Raises:
        ValueError: It is not there. Headers of the message may have been taken from a sidecar.
    """
    at, template, left = 16, 0, part
    while True:
        end = at + int.from_bytes(message[at : at + 4], "big")
        if not at + 5 <= end <= len(message) - 4:
            raise ValueError(f"a section of {end - at} bytes")
        if message[at + 4] == 5:
            template = int.from_bytes(message[at + 9 : at + 11], "big")
        elif message[at + 4] == 7:
            if not left:
                return template, (at, end)
            left -= 1
        at = end


def _is_whole_png(stream: bytes) -> bool:
    """Follow the chunks of PNG to the last one."""
    at, kind = 8, b""
    while kind != b"IEND" and at < len(stream):
        kind = stream[at + 4 : at + 8]
        at += 12 + int.from_bytes(stream[at : at + 4], "big")
    return kind == b"IEND" and at <= len(stream)


def _lengthen(message: bytes, begin: int, end: int) -> bytes:
    """Return a message whose data section has more bytes, of which sound values do not depend."""
    section = (end - begin + _MORE).to_bytes(4, "big") + message[begin + 4 : end]
    length = (len(message) + _MORE).to_bytes(8, "big")
    body = message[16:begin] + section + b"\xff" * _MORE + message[end:]
    return message[:8] + length + body
