"""Read the directory of a ZIP archive as columns: names, places and methods of its members.

Where the bytes of a member begin, the directory does not say: a header of any length lies before
them. Where a member ends exactly at the next one, that header can hold nothing but the name. All
others are asked for their headers: ``docs/decisions/0082-archives-and-repositories-as-sources.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError, UnsupportedError
from icevirt.model.strings import Bytes, Places, Strings, bytes_at, gather

HEADER = 30  # bytes before the name of a member
SIGNATURE = b"PK\x03\x04"
EMPTY = b"PK\x05\x06"  # with what an archive without members begins
STORED, DEFLATED = 0, 8

_END, _END_SIZE = b"PK\x05\x06", 22
_LOCATOR, _LOCATOR_SIZE = b"PK\x06\x07", 20
_END64, _END64_SIZE = b"PK\x06\x06", 56
_LONGEST_COMMENT = (1 << 16) - 1
_ENTRY_SIZE = 46
_ENTRY = np.dtype(
    [
        *(("signature", "<u4"), ("made_by", "<u2"), ("needed", "<u2"), ("flags", "<u2")),
        *(("method", "<u2"), ("time", "<u2"), ("date", "<u2"), ("crc", "<u4")),
        *(("packed", "<u4"), ("size", "<u4"), ("name", "<u2"), ("extra", "<u2")),
        *(("comment", "<u2"), ("disk", "<u2"), ("internal", "<u2"), ("external", "<u4")),
        ("offset", "<u4"),
    ]
)
_LOCAL = np.dtype(
    [
        *(("signature", "S4"), ("needed", "<u2"), ("flags", "<u2"), ("method", "<u2")),
        *(("time", "<u4"), ("crc", "<u4"), ("packed", "<u4"), ("size", "<u4")),
        *(("name", "<u2"), ("extra", "<u2")),
    ]
)
_ELSEWHERE, _ELSEWHERE_DISK = 0xFFFFFFFF, 0xFFFF  # the value stands in the extra field
_ZIP64 = 1  # the extra field that holds it
_ENCRYPTED, _UTF8 = 0x1 | 0x40 | 0x2000, 0x800  # flags
_PADDED = 1 << 28  # bytes of names of one length, at most
_SAMPLE = 16  # headers that are compared although nothing else can stand there

type Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipDirectory:
    """The members of an archive, one a name: of several with one name the last, sorted by it."""

    names: Strings  # (n,)
    method: NDArray[np.uint16]  # (n,)
    crc: NDArray[np.uint32]  # (n,)
    header: Places  # (n,) where the header of a member begins
    named: Places  # (n,) bytes of its name
    packed: Places  # (n,) bytes of it in the archive
    size: Places  # (n,) bytes of it unpacked
    room: Places  # (n,) bytes between its header with its name and the next one, without its own

    def proven(self) -> NDArray[np.bool_]:
        """Say which members need no look at their headers: nothing but the name fits there."""
        return np.asarray(self.room == 0)

    def sample(self) -> Places:
        """Return members whose headers are compared although they are proven."""
        count = len(self.header)
        return np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64))

    def starts(self, rows: Places, headers: Bytes, url: str) -> Places:
        """Return where the bytes of members begin, given their headers, shape (n, 30).

        Raises:
            ScanError: A header is not that of its member.
        """
        found = np.ascontiguousarray(headers).view(_LOCAL)[:, 0]
        extra = found["extra"].astype(np.int64)
        wrong = (found["signature"] != SIGNATURE) | (found["name"] != self.named[rows])
        wrong |= (found["method"] != self.method[rows]) | (extra > self.room[rows])
        if wrong.any():
            name = self.names[int(rows[np.argmax(wrong)])]
            raise damaged(url, cause="a member is not where the directory says", member=name)
        return self.header[rows] + HEADER + self.named[rows] + extra


def read_directory(read: Read, size: int, url: str) -> ZipDirectory:
    """Read the directory of an archive, in two reads at its end.

    Args:
        read: Returns bytes, given offset and length.
        size: Of the archive.
        url: Of the archive.

    Raises:
        ScanError: It is damaged or cut off.
        UnsupportedError: It is encrypted, or divided into several files.
    """
    tail_at = max(size - _END_SIZE - _LONGEST_COMMENT - _LOCATOR_SIZE - _END64_SIZE, 0)
    tail = read(tail_at, size - tail_at)
    count, length, begin, shift = _read_end(tail, tail_at, url)
    raw = tail[begin - tail_at :][:length] if begin >= tail_at else read(begin, length)
    if len(raw) != length:
        raise damaged(url, cause="its directory is cut off")
    data = np.frombuffer(raw, np.uint8)
    at, entries = _entries_of(data, count, url)
    _refuse_entries(entries, url)
    names = Strings(*gather(data, at + _ENTRY_SIZE, entries["name"].astype(np.int64)))
    _refuse_names(names, entries, url)
    size64, packed, header = _places(data, at, entries, url)
    header = header + shift
    if (torn := (entries["method"] == STORED) & (size64 != packed)).any():
        name = names[int(np.argmax(torn))]
        raise damaged(url, cause="a member that is as it was, of two sizes", member=name)
    named = entries["name"].astype(np.int64)
    order = np.argsort(header, kind="stable")
    ends = np.append(header[order][1:], begin)
    room = np.empty(count, np.int64)
    room[order] = ends - (header + HEADER + named + packed)[order]
    if (room < 0).any() or (header < 0).any():
        name = names[int(np.argmin(room))]
        raise damaged(url, cause="members overlap, or lie outside of it", member=name)
    kept = _last_of_each(names)
    return ZipDirectory(
        names=names[kept],
        method=entries["method"][kept],
        crc=entries["crc"][kept],
        header=header[kept],
        named=named[kept],
        packed=packed[kept],
        size=size64[kept],
        room=room[kept],
    )


def _read_end(tail: bytes, tail_at: int, url: str) -> tuple[int, int, int, int]:
    """Return how many members there are, length and place of the directory, and what precedes."""
    at = len(tail)
    while (at := tail.rfind(_END, 0, at)) >= 0:
        comment = int.from_bytes(tail[at + 20 : at + 22], "little")
        if at + _END_SIZE + comment == len(tail):
            break
    else:
        raise damaged(url, cause="it has no end of a directory: it is cut off, or still written")
    fields = [tail[at + low : at + high] for low, high in ((4, 6), (6, 8), (10, 12))]
    disk, first_disk, count = (int.from_bytes(field, "little") for field in fields)
    length, begin = (int.from_bytes(tail[at + n : at + n + 4], "little") for n in (12, 16))
    end = at
    if tail[max(at - _LOCATOR_SIZE, 0) : at].startswith(_LOCATOR):
        end = at - _LOCATOR_SIZE - _END64_SIZE
        if end < 0 or not tail.startswith(_END64, end):
            raise damaged(url, cause="its end of a directory of zip64 is not where it should be")
        disk, first_disk = (int.from_bytes(tail[end + n : end + n + 4], "little") for n in (16, 20))
        count, length, begin = (
            int.from_bytes(tail[end + n : end + n + 8], "little") for n in (32, 40, 48)
        )
    if disk or first_disk:
        raise _refuse("is divided into several files", url)
    shift = tail_at + end - length - begin  # bytes before the archive, which its offsets ignore
    if shift < 0:
        raise damaged(url, cause="its directory is cut off")
    return count, length, begin + shift, shift


def _entries_of(data: Bytes, count: int, url: str) -> tuple[Places, NDArray[Any]]:
    """Return where the entries of a directory begin, and their fields."""
    at = _signatures(data)
    entries = _fields(data, at)
    if not _follow(at, entries, count, len(data)):  # a name or comment holds the signature
        at = _walk(data, count)
        entries = _fields(data, at)
        if not _follow(at, entries, count, len(data)):
            raise damaged(url, cause="its directory does not hold what its end says")
    return at, entries


def _signatures(data: Bytes) -> Places:
    if len(data) < _ENTRY_SIZE:
        return np.zeros(0, np.int64)
    most = len(data) - _ENTRY_SIZE + 1
    at = np.flatnonzero(data[:most] == ord("P"))
    for back, byte in enumerate(b"K\x01\x02", 1):
        at = at[data[at + back] == byte]
    return at


def _fields(data: Bytes, at: Places) -> NDArray[Any]:
    if not len(at):
        return np.zeros(0, _ENTRY)
    return np.ascontiguousarray(bytes_at(data, at, _ENTRY_SIZE)).view(_ENTRY)[:, 0]


def _follow(at: Places, entries: NDArray[Any], count: int, size: int) -> bool:
    """Say whether these entries follow one another from the beginning to the end."""
    more = sum(entries[name].astype(np.int64) for name in ("name", "extra", "comment"))
    ends = at + _ENTRY_SIZE + more
    return len(at) == count and np.array_equal(np.append(at, size), np.append(0, ends))


def _walk(data: Bytes, count: int) -> Places:
    """Return where entries begin, one after the other: seldom, so a loop does."""
    raw, at, found = data.tobytes(), 0, list[int]()
    while len(found) < count and at + _ENTRY_SIZE <= len(raw):
        found.append(at)
        lengths = np.frombuffer(raw, "<u2", 3, at + 28)
        at += _ENTRY_SIZE + int(lengths.sum())
    return np.array(found, np.int64)


def _refuse_entries(entries: NDArray[Any], url: str) -> None:
    if (entries["flags"] & _ENCRYPTED).any():
        raise _refuse("is encrypted", url)
    if (~np.isin(entries["disk"], (0, _ELSEWHERE_DISK))).any():
        raise _refuse("is divided into several files", url)


def _refuse_names(names: Strings, entries: NDArray[Any], url: str) -> None:
    if not len(names):
        return
    if (names.data == 0).any() or (names.lengths == 0).any():
        raise damaged(url, cause="a member has no name, or one with a zero byte")
    high = np.add.reduceat(names.data > 127, names.starts[:-1])
    odd = (high > 0) & ((entries["flags"] & _UTF8) == 0)
    if odd.any():
        raise _refuse("holds names that are not said to be UTF-8", url)
    try:
        names.data.tobytes().decode()
    except UnicodeDecodeError as error:
        raise damaged(url, cause="a name that is not UTF-8") from error


def _places(
    data: Bytes, at: Places, entries: NDArray[Any], url: str
) -> tuple[Places, Places, Places]:
    """Return size, packed size and offset, those beyond 4 GiB from the extra fields."""
    found = [entries[name].astype(np.int64) for name in ("size", "packed", "offset")]
    held = [column == _ELSEWHERE for column in found]
    rows = np.flatnonzero(held[0] | held[1] | held[2])
    if not len(rows):
        return found[0], found[1], found[2]
    place = at[rows] + _ENTRY_SIZE + entries["name"][rows]
    end = place + entries["extra"][rows]
    place = _zip64_fields(data, place, end)
    for column, is_held in zip(found, held, strict=True):
        mine = is_held[rows]
        if (place[mine] + 8 > end[mine]).any():
            raise damaged(url, cause="a member whose size or place is not said")
        some = bytes_at(data, place[mine], 8) if mine.any() else np.zeros((0, 8), np.uint8)
        values = np.ascontiguousarray(some).view("<u8").reshape(-1)
        if (values >> np.uint64(62)).any():
            raise damaged(url, cause="a member whose size or place cannot be")
        column[rows[mine]] = values.astype(np.int64)
        place = place + 8 * mine
    return found[0], found[1], found[2]


def _zip64_fields(data: Bytes, place: Places, end: Places) -> Places:
    """Return where the values of the extra field of zip64 begin; behind the end where none is."""
    place = place.copy()
    looking = np.arange(len(place))
    while len(looking := looking[place[looking] + 4 <= end[looking]]):
        header = np.ascontiguousarray(bytes_at(data, place[looking], 4)).view("<u2")
        place[looking] += 4
        looking, header = looking[header[:, 0] != _ZIP64], header[header[:, 0] != _ZIP64]
        place[looking] += header[:, 1]
    return place


def _last_of_each(names: Strings) -> Places:
    """Return the rows of members in order of their names, of one name the last, without folders."""
    width = int(names.lengths.max(initial=1))
    keys: NDArray[Any]
    if len(names) * width > _PADDED:
        keys = np.array([*names], object)
    else:
        padded = np.zeros((len(names), width), np.uint8)
        padded[np.arange(width) < names.lengths[:, None]] = names.data
        keys = padded.view(f"S{width}").reshape(-1)  # names hold no zero bytes
    order = np.argsort(keys, kind="stable")
    is_last = np.append(keys[order][1:] != keys[order][:-1], True)[: len(order)]
    kept: Places = order[is_last]
    is_folder = names.data[names.starts[1:] - 1] == ord("/")
    files: Places = kept[~is_folder[kept]]
    return files


def damaged(url: str, **facts: Any) -> ScanError:
    """Return the error of an archive that is not what it should be."""
    return ScanError(
        "a damaged ZIP archive", do="Fetch or write it again, or leave it out.", file=url, **facts
    )


def _refuse(what: str, url: str) -> UnsupportedError:
    return UnsupportedError(
        f"a ZIP archive that {what}", do="Unpack it, and build from the folder.", file=url
    )
