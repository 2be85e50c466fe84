"""Stream the names of files that appear below a prefix: a source for Spark 4.0 and newer.

``spark.readStream.format("icevirt-files").load(prefix)`` yields a row for each new file, wherever
icevirt lists files, and however old a file claims to be: not times are compared, but listings.
An offset holds a sum for each of 256 shares of the listing. A share whose sum changed since is
named again, so each file is named at least once; `icevirt.spark.foreach_batch` appends it once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from icevirt.archive.scanned import SourceFile
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.objects.source_lists.listing import list_sources

NAME = "icevirt-files"
SCHEMA = "path string, length bigint, etag string, modificationTime timestamp"
SHARES = 256
"""How many shares an offset tells apart: of a million files, a new one has 4,000 named again."""

_WIDTH = 16  # letters of a sum
_MODULUS = 1 << 64


def share_of(url: str) -> int:
    """Return the share of the listing that a file belongs to."""
    return hashlib.blake2b(url.encode(), digest_size=1).digest()[0]


def sums_of(files: Iterable[SourceFile]) -> list[int]:
    """Return a sum of what identifies its files for each share; their order does not matter."""
    sums = [0] * SHARES
    for file in files:
        text = f"{file.url}\n{file.size}\n{file.etag}\n{file.last_modified}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        share = share_of(file.url)
        sums[share] = (sums[share] + int.from_bytes(digest)) % _MODULUS
    return sums


def as_offset(sums: Iterable[int]) -> dict[str, str]:
    """Return the offset of a listing; that of an empty one is the first of all."""
    return {"shares": "".join(f"{each:0{_WIDTH}x}" for each in sums)}


def differing(start: Mapping[str, str], end: Mapping[str, str]) -> frozenset[int]:
    """Return the shares in which two listings differ.

    Raises:
        InvalidInputError: An offset is not of this source.
    """
    texts = [each.get("shares", "") for each in (start, end)]
    if any(len(text) != SHARES * _WIDTH for text in texts):
        raise InvalidInputError(
            "the checkpoint holds offsets of another source",
            do="Start the query from a new checkpoint: no file is appended twice.",
        )
    one, other = texts
    return frozenset(
        share
        for share in range(SHARES)
        if one[share * _WIDTH :][:_WIDTH] != other[share * _WIDTH :][:_WIDTH]
    )


def listed_files(path: str, access: str) -> tuple[SourceFile, ...]:
    """List the files below a prefix; none where a folder or bucket holds none yet.

    Raises:
        NotFoundError: There is no such folder.
    """
    grants = {path: access} if access else None
    with granted(SourceAccess.of(grants)):
        try:
            return list_sources([path])
        except NotFoundError:
            raise
        except InvalidInputError as error:
            if error.facts.get("source") == path:  # nothing matches it, or not yet
                return ()
            raise
