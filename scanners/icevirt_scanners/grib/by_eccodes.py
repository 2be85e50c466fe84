"""Read values with ecCodes, the reference library of GRIB: to verify, and to store them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError, UnsupportedError

_MISSING = 1e34  # where a bitmap leaves a point out; no field holds it


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
        with _opened(message, part) as (_, handle):
            eccodes.codes_set(handle, "missingValue", _MISSING)
            found: NDArray[np.float64] = eccodes.codes_get_values(handle)
    except eccodes.CodesInternalError as error:
        raise ScanError(
            "ecCodes cannot read a message",
            do="Fetch the file again, or leave it out.",
            file=file,
            message=number,
            cause=str(error),
        ) from error
    return np.where(found == _MISSING, np.nan, found)
