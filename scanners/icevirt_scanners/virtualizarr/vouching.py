"""Say who vouches for values that a codec of another tool decodes.

The codecs of zarr-python and numcodecs are general: what they decode to follows from a description
that is checked. Any other codec reads a file format on its own. Its values are compared with those
of a reference library where there is one, while a file is scanned; else a warning says that nobody
compared them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata

from icevirt.archive.scanned import ScannedArray
from icevirt.model.json import JSON
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext
from icevirt_scanners.virtualizarr.grib_values import refuse_other_values, why_not_compared

_GENERAL = frozenset(("zarr", "numcodecs"))  # packages
_GRIBBERISH = "gribberish"


def vouched(
    arrays: Sequence[ScannedArray], context: ScanContext, elsewhere: Elsewhere
) -> tuple[ScannedArray, ...]:
    """Return arrays whose values nobody knows to be wrong, with a warning of those not compared.

    Raises:
        UnsupportedError: A codec decodes to other values than the reference library, and the
            variable may not be left out.
    """
    by_path = {each.path: each for each in arrays}
    kept = (
        context.represented(each.path, partial(_vouched, each, by_path, context, elsewhere))
        for each in arrays
    )
    return tuple(each for each in kept if each is not None)


def _vouched(
    array: ScannedArray,
    others: Mapping[str, ScannedArray],
    context: ScanContext,
    elsewhere: Elsewhere,
) -> ScannedArray:
    own = _own_readers(array.codecs)
    if not own:
        return array
    why = "no reference library is known"
    if own == [_GRIBBERISH]:
        why = why_not_compared(array, others, elsewhere)
        why = why or refuse_other_values(array, others, context, elsewhere)
        if not why:
            return array
    context.warn(
        array.path,
        "values-not-compared",
        f"values not compared by icevirt: {', '.join(map(_with_version, own))} alone answers for"
        f" them; {why}",
    )
    return array


def _own_readers(codecs: Sequence[JSON]) -> list[str]:
    """Return the names of codecs that are neither zarr's nor numcodecs'."""
    names = [str(each["name"] if isinstance(each, Mapping) else each) for each in codecs]
    return [name for name in dict.fromkeys(names) if _package_of(name) not in _GENERAL]


def _package_of(codec: str) -> str:
    from zarr.registry import get_codec_class

    try:
        return get_codec_class(codec).__module__.partition(".")[0]
    except (KeyError, ValueError, ImportError):
        return ""


def _with_version(codec: str) -> str:
    package = _package_of(codec)
    try:
        return f"the codec {codec} of {package} {metadata.version(package)}"
    except (metadata.PackageNotFoundError, ValueError):
        return f"the codec {codec}"
