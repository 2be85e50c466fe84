"""Read a MessagePack file strictly, value by value, in memory that its size bounds.

Structs were written as arrays by position, choices as text or as a map of one entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack

from icevirt.wire.flatbuffer.reader import Damage
from icevirt.wire.metadata import check_counts, unique_keys

MOST_CONTAINERS = 2_000_000
_FREE_CONTAINERS = 10_000
_BYTES_PER_CONTAINER = 3  # of honest values; an empty array takes one byte, and 60 in memory


class MessagePackFile:
    """One value, whose outer arrays and maps can be read one by one, in the memory of one.

    Raises:
        Damage: From every method: the bytes are no MessagePack, or made to exhaust memory.
    """

    def __init__(self, raw: bytes) -> None:
        self._most = min(MOST_CONTAINERS, _FREE_CONTAINERS + len(raw) // _BYTES_PER_CONTAINER)
        self._left = self._most
        size = self._guarded(lambda: check_counts(raw))
        if size != len(raw):
            raise Damage("bytes follow the MessagePack value", size)
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=max(len(raw), 1),
            strict_map_key=False,
            use_list=False,
            list_hook=self._counted,
            object_pairs_hook=self._map,
        )
        self._unpacker.feed(raw)

    def array(self) -> int:
        """Enter an array and return how many values follow."""
        return int(self._guarded(self._unpacker.read_array_header))

    def map(self) -> int:
        """Enter a map and return how many pairs of values follow."""
        return int(self._guarded(self._unpacker.read_map_header))

    def value(self) -> Any:
        """Return the next value whole: arrays are tuples, maps dicts."""
        self._left = self._most  # what came before is not kept, however much it was
        return self._guarded(self._unpacker.unpack)

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Enter a map and yield what it holds."""
        for _ in range(self.map()):
            key = self.value()
            yield key, self.value()

    def _counted(self, items: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError("more arrays and maps than such a file has")
        return items

    def _map(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        return self._counted(unique_keys(pairs))  # type: ignore[no-any-return]

    def _guarded(self, read: Any) -> Any:
        try:
            return read()
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            cause = str(error).rstrip(".") or type(error).__name__
            raise Damage(f"the MessagePack is damaged: {cause[:200]}", 0) from error
