"""Notice files that a program has open for writing, or did not close.

What such a file holds is not all on disk yet, and may change. Three signs tell: this process has it
open through h5py; a process of this machine holds HDF5's lock, as Linux lists it; the superblock is
marked. The last is also what a program leaves that ends without closing its files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from h5py import h5f

from icevirt.errors import ScanError
from icevirt.scan.contract import ByteSource
from icevirt_scanners.context import ScanContext

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
