"""Define the catalog's schema: what a scan stores, and every later step starts from.

A catalog is a set of *parts*. A part covers a fixed run of source files and is three Parquet
files, written in the order ``refs``, ``arrays``, ``files``; a part whose ``files`` exists is
complete, and never changes. Its name has three pieces: the identity of the scan (options and
versions of the scanners), a digest of the files (URL, size, checksum), and a digest of ``refs`` and
``arrays``, so that two tasks that scan the same files at once never mix their tables. Where files
moved, another part names them anew and shares the other tables; its second piece holds both
digests, with a dot between. A scan looks
for its files in the rows of the complete parts of its identity and scans only those it does not
find, so a resumed one finds what was finished, and a file that changed is scanned again. Rows of
bad files that are to be tried again are named in ``forgotten``. Types are Arrow's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from icevirt.archive.sources import SourceFile

VERSION = 5
"""Of this schema."""

FILES = (
    ("row", "int32"),  # of the file in its part
    ("url", "string"),
    ("size", "int64"),  # bytes
    ("etag", "string"),
    ("last_modified", "int64"),  # nanoseconds since 1970
    ("status", "string"),  # "ok", or that of `status_of`
    ("code", "string"),  # of the error
    ("error", "string"),
    ("signature", "string"),  # digest of the decode signatures of its arrays
    ("time_limit", "float64"),  # seconds that scanning might take
    ("memory_limit", "int64"),  # bytes that it might take
    ("scanner", "string"),
    ("scanner_version", "string"),
    ("seconds", "float64"),
    ("requests", "int64"),  # to a server
    ("bytes_fetched", "int64"),  # from it
    ("groups", "string"),  # JSON: [{"path", "values", "dtypes"}]
    ("findings", "string"),  # JSON: [{"path", "code", "message", "severity"}]
    ("places", "string"),  # JSON list of directories that hold what it refers to; "": itself
    ("left_out", "string"),  # JSON list of the paths of variables that were not asked for
)

ARRAYS = (
    ("row", "int32"),  # of the file
    ("path", "string"),
    ("schema", "string"),  # JSON of `ArraySchema`: what is alike in most files
    ("shape", "string"),  # JSON list
    ("labels", "binary"),
    ("labels_dtype", "string"),
    ("digest", "string"),
    ("virtual", "int64"),  # references
    ("inline", "int64"),
    ("virtual_bytes", "int64"),
    ("inline_bytes", "int64"),
)

REFS = (
    ("path", "string"),
    ("ndim", "int32"),
    *((name, "binary") for name in ("files", "counts", "boxes", "index", "kinds", "gaps")),
    *((name, "binary") for name in ("lengths", "data", "sources", "targets")),
)

MORE = (
    ("row", "int32"),  # of the file
    ("path", "string"),
    ("asked", "int32"),  # `Fact`: what was looked for; what is not there then is not to be had
    ("digest", "string"),
    ("labels", "binary"),
    ("labels_dtype", "string"),
    ("schema", "string"),  # JSON of `ArraySchema` of the values, "" where there are none
    ("nbytes", "int64"),  # of the values
    ("values", "binary"),  # all of them, as one chunk
)

BLOCK_REFS = 65_536
"""References after which a packed row is closed; with about 16 bytes each it stays near 1 MiB."""

BLOCK_DATA = 1 << 20
"""Inline bytes after which a packed row is closed."""

_FEW = 8  # small files, which one part takes
_LITTLE = 4 << 20  # their bytes; its tables take longer than scanning one of them

OK = "ok"
"""The status of a file that was scanned."""

_STATUS = {
    "scan": "corrupt",
    "format": "corrupt",
    "unsupported": "unsupported",
    "stale-reference": "changed",
    "not-found": "missing",
    "object-not-found": "missing",
    "crashed": "crashed",
    "timeout": "timeout",
    "oom": "oom",
}


def status_of(code: str) -> str:
    """Return the status of a bad file, by the code of its error.

    "corrupt" (damaged, or no scanner reads it), "unsupported" (it has something that cannot be
    represented), "changed" (since it was listed), "missing", "crashed", "timeout" and "oom" (what
    it did to the process that scanned it), or "unreadable" (the storage did not let it be read).
    """
    return _STATUS.get(code, "unreadable")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPart:
    """A run of source files that is scanned, written and resumed as one.

    One that holds a single huge file may be scanned in pieces: this is piece number ``piece``.
    """

    name: str
    files: tuple[SourceFile, ...]
    piece: int = 0
    of: int = 1

    @property
    def label(self) -> str:
        """The name, and which piece."""
        return self.name if self.of == 1 else f"{self.name}-{self.piece}-of-{self.of}"

    def pieces(self) -> tuple[CatalogPart, ...]:
        """Return the pieces."""
        return tuple(replace(self, piece=number) for number in range(self.of))


def parts_of(
    files: Sequence[SourceFile],
    *,
    identity: str,
    attempt: int = 0,
    pieces: Mapping[str, int] | None = None,
) -> tuple[CatalogPart, ...]:
    """Cut the files, in their order, into parts.

    The size of a part depends on the number and the sizes of files alone, so that a scan resumed on
    another machine cuts alike. Ten million files make some ten thousand parts. ``attempt``
    distinguishes parts that hold the same files, tried again. Files that are scanned in ``pieces``,
    by URL, have a part each.
    """
    size = size_of_parts(len(files))
    huge = pieces or {}
    runs: list[list[SourceFile]] = []
    held = 0  # bytes of the files of the last part
    for file in files:
        last = runs[-1] if runs else []
        goes_on = len(last) < size or (len(last) < _FEW and held + file.size <= _LITTLE)
        if not last or not goes_on or file.url in huge or last[-1].url in huge:
            runs.append([])
            held = 0
        runs[-1].append(file)
        held += file.size
    return tuple(
        CatalogPart(
            name=f"{identity}-{_digest(identity, attempt, run)}",
            files=tuple(run),
            of=huge.get(run[0].url, 1),
        )
        for run in runs
    )


def size_of_parts(count: int) -> int:
    """Return how many of ``count`` files a part holds."""
    return max(1, min(256, -(-count // 64)), min(1024, -(-count // 4096)))


def _digest(identity: str, attempt: int, files: Iterable[SourceFile]) -> str:
    facts = [VERSION, identity, attempt, [list(asdict(file).values()) for file in files]]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def rename_part(part: str, files: Sequence[SourceFile]) -> str:
    """Return the name of a part that describes other files by the tables of a part."""
    scan, shared = scan_of(part), tables_of(part).partition("-")[2]
    return f"{scan}-{_digest(scan, 0, files)}.{shared}"


def tables_of(part: str) -> str:
    """Return the part with which the tables of a part but ``files`` were written."""
    scan, dash, rest = part.partition("-")
    return scan + dash + rest.rpartition(".")[2]


def run_of(part: str) -> str:
    """Return the name of a part without the digest of its content: scan and files."""
    return part.rpartition("-")[0]


def scan_of(part: str) -> str:
    """Return the identity of the scan that wrote a part."""
    return part.partition("-")[0]


def path_of(table: str, part: str) -> str:
    """Return where a table ("files", "arrays", "refs" ...) of a part lies in the catalog."""
    return f"{table}/{part if table == 'files' else tables_of(part)}.parquet"
