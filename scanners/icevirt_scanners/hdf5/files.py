"""Open an HDF5 file from a byte source, explain libhdf5's errors, and hold the state of its scan.

Files are opened without file locks (archives are often read-only mounts) and closed with everything
that was opened through them. External links are never followed.

A file names the filters of its datasets by number, and to find one libhdf5 loads every library in
the directories of ``HDF5_PLUGIN_PATH`` and in two of the system's. An untrusted file must not
trigger that, so filter plugins are off during a scan unless the user allows them. Filters that are
registered already (by ``import hdf5plugin``) stay.

libhdf5 reads zeros if an external raw file is missing, so every raw file is checked first. Raw
files must be in the directory of the scanned file or below it, or where the options allow: a file
that could name any path would copy that path's content into a repository.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import h5py
from h5py import h5d, h5f, h5i, h5o, h5p, h5pl

from icevirt.archive.sources import SourceFile
from icevirt.errors import IcevirtError, ScanError, UnsupportedError
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import LEAVE_OUT, ScanContext
from icevirt_scanners.hdf5.other_readers import find_other_reader, name_this_reader
from icevirt_scanners.hdf5.raw.header import ObjectHeader, RawFile

_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, EOFError)

ALLOW = "ICEVIRT_HDF5_PLUGINS"
"""Environment variable: ``1`` lets libhdf5 look for plugins, and imports hdf5plugin if it can."""

REMEDY = (
    "It needs a plugin, and hdf5plugin holds most: where you trust the files, run pip install"
    f" hdf5plugin and set {ALLOW}=1 for all processes that scan. Or leave the variable out with"
    " drop_variables."
)
_VALUES = "read data"  # what h5py says where it opened a variable, and values are damaged
LACKS_FILTER = "this libhdf5 lacks a filter of values that must be read"

# by a part of what h5py says: the error and its remedy
_CAUSES = {
    "find plugin": (LACKS_FILTER, REMEDY),
    "is not registered": (LACKS_FILTER, REMEDY),
    "truncated": ("the file is truncated", "Fetch it again, or leave it out."),
    "already open for": (
        "the file was not closed by its writer",
        (
            "Wait until its writer has closed it. If its writer ended without closing it, run"
            " `h5clear -s FILE`; what was not written out by then is lost."
        ),
    ),
    "": ("the file is damaged", "Fetch it again, or leave it out."),
}
_SIZES = re.compile(r"eof = (\d+), sblock->base_addr = 0, stored_eof = (\d+)")
_FOLLOWED = "values outside the file must be read, and this process has the file open"
CLOSE_IT = write_remedy(
    "Close it first, or pass ", write_option("file_timeout"), " to scan in another process."
)
"""What to do where libhdf5 has to follow a file that this process reads already."""

_OPEN_HERE = "n't match"  # this process reads the file already, and in another way
_lock = threading.Lock()
_kept: list[bytes] = []  # the directories, while there are none
_depth = 0  # scans that run


class HeldFile:
    """A file that libhdf5 opens for reading at first use.

    ``again``: libhdf5 itself may open it as well, as the source of a virtual dataset.
    """

    __slots__ = ("_again", "_fid", "_source", "is_detached")

    def __init__(self, source: ByteSource, *, again: bool = False) -> None:
        self._source, self._again = source, again
        self._fid: h5f.FileID | None = None
        self.is_detached = source.local_path is None
        """Whether libhdf5 does not know the file's place, and so no file beside it."""

    @property
    def fid(self) -> h5f.FileID:
        """The open file. Raises ``ScanError`` where libhdf5 cannot open it."""
        if self._fid is None:
            with explained(self._source.file.url):
                self._fid = self._open()
        return self._fid

    def _open(self) -> h5f.FileID:
        if self._source.local_path is not None:
            try:
                access = _access(strong=not self._again)
                return h5f.open(self._source.local_path.encode(), h5f.ACC_RDONLY, access)
            except OSError as error:
                if _OPEN_HERE not in str(error):
                    raise
                self.is_detached = True
        return h5py.File(RangeReader(self._source), "r").id

    def close(self) -> None:
        """Close the file and all that was opened through it."""
        if self._fid is not None:
            self._fid.close()


@contextmanager
def hold_open(source: ByteSource, *, again: bool = False) -> Iterator[HeldFile]:
    """Yield a file that is opened at first use, and closed in the end.

    Raises:
        ScanError: A process of this machine has it open for writing.
    """
    refuse_open_for_writing(source)
    with no_plugins():
        file = HeldFile(source, again=again)
        try:
            yield file
        except ScanError as error:
            refuse_open_for_writing(source, is_suspect=True)
            _refuse_what_others_open(source, error)
            raise
        finally:
            file.close()


def _refuse_what_others_open(source: ByteSource, error: ScanError) -> None:
    """Raise an error that names versions, where another one opens what looks damaged."""
    if error.what != _CAUSES[""][0] or source.local_path is None:
        return
    facts = error.facts
    if _VALUES in str(facts.get("cause")):  # the others describe variables, and read no values
        return
    other = find_other_reader(source.local_path, facts.get("variable", ""))
    if not other:
        return
    do = write_remedy(
        "Install an h5py with another libhdf5 (pip install -U h5py, or that of conda-forge), or"
        " write the file again with a library that opens it, like `nccopy FILE NEW`."
    )
    if "variable" in facts:
        left_out = write_option("drop_variables", [facts["variable"]])
        do = write_remedy(do, " Or leave the variable out: ", left_out, ".")
    what = f"{name_this_reader()} refuses what {other} opens, so the file is not damaged"
    raise ScanError(what, do=do, **facts) from error


@cache
def _access(*, strong: bool) -> h5p.PropFAID:
    access = h5p.create(h5p.FILE_ACCESS)
    if strong:
        access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_file_locking(False, True)
    return access


class Handle:
    """A group or dataset that libhdf5 opens at first use."""

    __slots__ = ("_file", "_id", "path")

    def __init__(self, *, id: Any = None, file: HeldFile | None = None, path: bytes = b"") -> None:  # noqa: A002
        self._id, self._file, self.path = id, file, path

    @property
    def id(self) -> Any:
        """The h5py id."""
        if self._id is None:
            assert self._file is not None, "an object has an id or a file"
            self._id = h5o.open(self._file.fid, self.path)
        return self._id

    @property
    def is_open(self) -> bool:
        """Whether libhdf5 opened it."""
        return self._id is not None


@dataclass(slots=True, kw_only=True, eq=False)
class FileContext(ScanContext):
    """The scan of an open HDF5 file."""

    file: HeldFile
    raw: RawFile | None  # None where everything is left to libhdf5
    elsewhere: Elsewhere  # files beside the scanned one
    beside: dict[str, SourceFile] = field(default_factory=dict)  # those looked into, by URL
    parents: tuple[FileContext, ...] = ()  # files whose virtual datasets lead here
    above: list[tuple[str, int]] = field(default_factory=list)  # those datasets: file, address
    reopened: dict[int, Handle] = field(default_factory=dict)  # datasets with raw files, by address
    tally: dict[str, int] = field(default_factory=dict)  # see `ScannedFile`

    @property
    def fid(self) -> Any:
        """The h5py FileID; libhdf5 opens the file where it did not yet."""
        return self.file.fid

    def header(self, address: int) -> ObjectHeader | None:
        """Return the object header at an address, None if only libhdf5 can read it."""
        return self.raw.header(address) if self.raw is not None else None


class explained:  # noqa: N801  # used like a function; a generator would cost more than it does
    """Turn what h5py raises into a `ScanError` that names the file and the variable."""

    __slots__ = ("_facts",)

    def __init__(self, url: str, variable: str | None = None) -> None:
        self._facts = {"file": url} if variable is None else {"file": url, "variable": variable}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, _DAMAGE) or isinstance(error, IcevirtError):
            return
        if isinstance(error, RecursionError):
            raise UnsupportedError(
                "the file is nested deeper than Python's recursion limit",
                do="Leave the variable out with drop_variables.",
                **self._facts,
            ) from error
        cause = str(error).strip("'\"") or type(error).__name__
        what, do = next((known for part, known in _CAUSES.items() if part in cause), _CAUSES[""])
        if sizes := _SIZES.search(cause):
            cause = f"it has {int(sizes[1]):,} of {int(sizes[2]):,} bytes"
        kind = UnsupportedError if what is LACKS_FILTER else ScanError
        raise kind(what, do=do, **self._facts, cause=cause) from error


class RangeReader(io.RawIOBase):
    """A byte source as the seekable file that h5py's file-object driver wants."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to ``offset`` from the start, the current place or the end."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.file.size}
        self._at = base[whence] + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` from the current place; return how many bytes there were."""
        data = self._source.read(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def no_plugins() -> Iterator[None]:
    """Empty libhdf5's list of directories for the time of a scan; scans may overlap."""
    if os.environ.get(ALLOW) == "1":
        if importlib.util.find_spec("hdf5plugin") is not None:
            importlib.import_module("hdf5plugin")
        yield
        return
    global _depth  # noqa: PLW0603 - libhdf5's list is one for the process, too
    with _lock:
        _depth += 1
        while h5pl.size():
            _kept.append(h5pl.get(0))
            h5pl.remove(0)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            while not _depth and _kept:
                h5pl.prepend(_kept.pop())


def check_elsewhere(
    dsid: Any, plist: Any, layout: int, *, context: FileContext, variable: str
) -> str:
    """Return which other files hold the values of a dataset, "" for none; check its raw files.

    These must hold all values: libhdf5 reads zeros behind their end. Sources of a virtual dataset
    are checked when it is resolved.

    Args:
        dsid: The dataset.
        plist: Its creation properties.
        layout: The layout in them.
        context: Of the scan.
        variable: For errors.

    Raises:
        ScanError: A raw file is missing or too short.
        UnsupportedError: One lies outside the file's directory, or cannot be checked.
    """
    if layout == h5d.VIRTUAL:
        return "a virtual dataset"
    if not plist.get_external_count():
        return ""
    facts = {"file": context.source.file.url, "variable": variable}
    path = context.source.local_path
    if path is None:
        raise UnsupportedError("values outside the remote file", do=LEAVE_OUT, **facts)
    if context.file.is_detached:
        raise ScanError(_FOLLOWED, do=CLOSE_IT, **facts)
    nbytes = dsid.get_type().get_size() * prod(dsid.shape)
    for number in range(plist.get_external_count()):
        name, offset, size = plist.get_external(number)
        place = str(Path(path).parent / os.fsdecode(name))
        try:
            source = context.elsewhere.source(place)
        except UnsupportedError as error:
            raise outside(error, facts) from error
        if source is None:
            what = "a source of the values is missing"
            raise ScanError(what, do=LEAVE_OUT, **facts, source=place)
        with source:
            context.beside[source.file.url] = source.file
        used = min(size, nbytes)  # the last may be without limit
        nbytes -= used
        if source.file.size < offset + used:
            what = "a source of the values is too short"
            raise ScanError(what, do=LEAVE_OUT, **facts, source=place)
    return "external raw files"


def outside(error: UnsupportedError, facts: dict[str, str]) -> UnsupportedError:
    """Return the error for a source that lies where it may not, naming the variable."""
    return UnsupportedError(
        "values in a file outside the directory of the scanned file",
        do=write_remedy(error.do, " ", LEAVE_OUT),
        **{**error.facts, **facts},
    )


def beside(dsid: Any) -> Any:
    """Close a dataset and open it such that its raw files are looked for beside the file.

    libhdf5's default is the working directory, which means nothing on an executor.
    """
    access = h5p.create(h5p.DATASET_ACCESS)
    access.set_efile_prefix(b"${ORIGIN}")
    file, name = h5i.get_file_id(dsid), h5i.get_name(dsid)
    dsid.close()  # libhdf5 accepts another prefix only for datasets that are not open
    return h5d.open(file, name, access)


_LOCKS = Path("/proc/locks")
_OLD = 1  # the last version of a superblock whose flags stand behind other facts
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MARKED = 1  # open for writing


def refuse_open_for_writing(source: ByteSource, *, is_suspect: bool = False) -> None:
    """Refuse a local file that a process of this machine has open for writing.

    Args:
        source: The file.
        is_suspect: Look at the locks though the file is not marked. That can take milliseconds.

    Raises:
        ScanError: One has.
    """
    if source.local_path is None:
        return
    try:
        facts = os.stat(source.local_path)
    except OSError:
        return  # opened already; what happened to it is noticed in the end
    own = os.getpid()
    writer = own if _is_open_here(facts) else None
    if writer is None and (is_suspect or _is_marked(source, 0)):
        writer = next(_lockers(facts), None)
    if writer is None:
        return
    where = "this process" if writer == own else "another process of this machine"
    raise ScanError(
        f"the file is open for writing in {where}",
        do="Close it there, then scan it again.",
        file=source.file.url,
        process=writer,
    )


def _is_marked(source: ByteSource, base: int) -> bool:
    """Say whether the superblock at ``base`` says that the file is open for writing."""
    head = source.read(base, 24)
    if len(head) < 24 or not head.startswith(_SIGNATURE):
        return False
    return bool((head[20] if head[8] <= _OLD else head[11]) & _MARKED)


def _is_open_here(facts: os.stat_result) -> bool:
    """Say whether h5py has a file open for writing."""
    for file in h5f.get_obj_ids(h5f.OBJ_ALL, h5f.OBJ_FILE):
        with suppress(OSError, ValueError, RuntimeError):  # in memory, without a name, just closed
            if file.get_intent() & h5f.ACC_RDWR and os.path.samestat(os.stat(file.name), facts):
                return True
    return False


def _lockers(facts: os.stat_result) -> Iterator[int]:
    """Yield the processes that hold the lock of a file for writing, where the system lists them."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return
    device = os.major(facts.st_dev), os.minor(facts.st_dev)
    for line in lines:
        with suppress(ValueError):
            kind, _, access, process, place = line.split()[1:6]
            major, minor, inode = place.split(":")
            is_same = (int(major, 16), int(minor, 16)) == device and int(inode) == facts.st_ino
            if is_same and (kind, access) == ("FLOCK", "WRITE"):
                yield int(process)


def tell_unclosed(context: ScanContext, base: int) -> None:
    """Warn of a file that is marked as open for writing, and that libhdf5 reads all the same.

    Args:
        context: Of the scan.
        base: Where the superblock is.
    """
    if _is_marked(context.source, base):
        context.warn(
            "/",
            "not-closed",
            "the file is marked as open for writing: what its writer had not written out is"
            " missing. Scan it again when the writer has closed it; if none will, h5clear -s"
            " removes the mark",
        )
