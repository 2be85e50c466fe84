"""Names in files as zarr node names.

Nearly every name is kept. Those that zarr reserves or cannot say (``..``, ``zarr.json``, names of
dots only, a leading ``__``, a ``/``, bytes that are not UTF-8) are percent-encoded, and the scan
says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote_from_bytes

from icevirt.errors import UnsupportedError


def node_name(raw: bytes) -> tuple[str, bool]:
    """Return the zarr name of a name that is not empty, and whether it differs."""
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return quote_from_bytes(raw, safe=" "), True
    if name == "zarr.json" or not name.strip("."):
        return "".join(f"%{byte:02X}" if byte == 46 else chr(byte) for byte in raw), True
    kept = name.replace("/", "%2F")
    if kept.startswith("__"):
        kept = "%5F" + kept[1:]
    return kept, kept != name


def check_distinct(taken: Sequence[str], url: str) -> None:
    """Refuse variables whose paths are the same.

    Raises:
        UnsupportedError: There are some.
    """
    twice = sorted(path for path, count in Counter(taken).items() if count > 1)
    if twice:
        raise UnsupportedError(
            "variables whose names become one in zarr",
            do=f"Leave them out: drop_variables={twice}.",
            file=url,
        )
