"""Read fixed-width fields of HDF5 blocks, many rows at a time, and check whole blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numcodecs.jenkins import jenkins_lookup3
from numpy.typing import NDArray

CHECKSUM = 4  # bytes behind everything that has one

type Rows = NDArray[np.uint8]  # (n, bytes): a row for each block or entry


class NotUnderstoodError(Exception):
    """A block is not as this reader expects it; libhdf5 must be asked."""


def require(truth: Any, what: str) -> None:
    """Give the dataset up to libhdf5 unless ``truth`` holds."""
    if not truth:
        raise NotUnderstoodError(what)


def number(data: bytes, at: int, width: int) -> int:
    """Return the little-endian unsigned integer of ``width`` bytes at ``at``."""
    end = at + width
    if not 0 <= at <= end <= len(data):
        raise NotUnderstoodError("a field outside its block")
    return int.from_bytes(data[at:end], "little")


def numbers(rows: Rows) -> NDArray[np.uint64]:
    """Return the little-endian unsigned integer in each row of at most 8 bytes."""
    n, width = rows.shape
    wide = np.zeros((n, 8), np.uint8)
    wide[:, :width] = rows
    column: NDArray[np.uint64] = wide.view("<u8").reshape(n)
    return column


def signed(column: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return a column that must fit 63 bits."""
    found = column.astype(np.int64)
    require(int(found.min(initial=0)) >= 0, "a number beyond 63 bits")
    return found


def defined(addresses: Rows) -> NDArray[np.bool_]:
    """Say which addresses lead anywhere; all bits are set in those that do not."""
    found: NDArray[np.bool_] = (addresses != 0xFF).any(axis=1)
    return found


def check_sum(block: bytes) -> None:
    """Compare the checksum at the end of a block with its content."""
    require(
        len(block) >= CHECKSUM
        and jenkins_lookup3(block[:-CHECKSUM]) == int.from_bytes(block[-CHECKSUM:], "little"),
        "a wrong checksum",
    )


def check_sums(rows: Rows) -> None:
    """Compare the checksum at the end of each row with its content."""
    for row in rows:  # a Python call for each block, not for each chunk
        check_sum(row.tobytes())


def check_heads(rows: Rows, head: bytes) -> None:
    """Compare the first bytes of each row."""
    require((rows[:, : len(head)] == np.frombuffer(head, np.uint8)).all(), f"no {head[:4]!r}")
