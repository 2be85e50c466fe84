"""Read the links of a group: from its object header, a fractal heap, or a symbol table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from icevirt_scanners.hdf5.raw.header import LINK, LINK_INFO, SHARED, SYMBOL_TABLE, Message
from icevirt_scanners.hdf5.raw.heaps import FractalHeap, RecordTree
from icevirt_scanners.hdf5.raw.space import Space, number, require

HARD = 0
_OTHER = 1  # of any other kind
_BY_NAME = 5  # kind of records in a tree of links
_HASH = 4  # bytes before the heap id in them
_TRACKED = 1  # flag of a group: it keeps the order in which links were made
_ORDER, _KIND, _CHARSET = 4, 8, 16  # flags of a link: optional fields
_CACHED_SOFT = 2  # how a symbol table says that an entry is a soft link
_DEEPEST = 16
_SOME = 512  # bytes that hold most nodes of such a tree


class Link(NamedTuple):
    """A name in a group."""

    name: bytes
    kind: int  # HARD or something else
    address: int  # of the object header a hard link leads to
    order: int  # in which links were made; 0 where the file does not keep it


def links_of(messages: Sequence[Message], space: Space) -> list[Link]:
    """List the links of a group, in creation order where the file keeps it, else by name.

    Raises:
        NotUnderstoodError: They do not stand as expected.
    """
    space.begin()
    infos = [message for message in messages if message.kind == LINK_INFO]
    tables = [message for message in messages if message.kind == SYMBOL_TABLE]
    require(len(infos) + len(tables) == 1, "no group, or two")
    require(not any(message.flags & SHARED for message in (*infos, *tables)), "a shared group")
    if tables:
        found = _of_table(tables[0].data, space)
        tracked = False
    else:
        data = infos[0].data
        require(number(data, 0, 1) == 0, "a newer group")
        tracked = bool(number(data, 1, 1) & _TRACKED)
        at, wide = 10 if tracked else 2, space.address_width
        heap, tree = number(data, at, wide), number(data, at + wide, wide)
        inside = [message for message in messages if message.kind == LINK]
        if heap == (1 << 8 * wide) - 1:
            found = [_link(message.data, wide) for message in inside]
        else:
            require(not inside, "links in two places")
            records = RecordTree(space, tree)
            require(records.kind == _BY_NAME, "records of another kind")
            objects = FractalHeap(space, heap)
            found = [_link(objects.item(one[_HASH:]), wide) for one in records.records()]
    found.sort(key=attrgetter("order" if tracked else "name"))
    require(len({link.name for link in found}) == len(found), "two links of one name")
    return found


@lru_cache(1024)  # most files of an archive have the same ones
def _link(data: bytes, address_width: int) -> Link:
    require(number(data, 0, 1) == 1, "a newer link")
    flags, at = number(data, 1, 1), 2
    kind = HARD
    if flags & _KIND:
        kind, at = number(data, at, 1), at + 1
    order = 0
    if flags & _ORDER:
        order, at = number(data, at, 8), at + 8
    at += 1 if flags & _CHARSET else 0
    width = 1 << (flags & 3)
    length, at = number(data, at, width), at + width
    name = data[at : at + length]
    require(len(name) == length > 0, "a link cut short")
    if kind != HARD:
        return Link(name, _OTHER, 0, order)
    return Link(name, HARD, number(data, at + length, address_width), order)


def _of_table(data: bytes, space: Space) -> list[Link]:
    """Read the links of an old group: a tree of symbol nodes, whose names lie in a local heap."""
    wide, long = space.address_width, space.length_width
    space.soon((number(data, at, wide), _SOME) for at in (0, wide))
    head = space.block(number(data, wide, wide), 8 + 2 * long + wide)
    require(head.startswith(b"HEAP\0"), "no local heap")
    nodes = _nodes(number(data, 0, wide), space)
    stored = number(head, 8 + 2 * long, wide), number(head, 8, long)
    space.soon([stored, *((node, _SOME) for node in nodes)])  # names and nodes in one wait
    names = space.block(*stored)
    return [link for node in nodes for link in _symbols(node, names, space)]


def _nodes(root: int, space: Space) -> list[int]:
    """Return the addresses of the symbol nodes of a tree, in its order."""
    wide, long = space.address_width, space.length_width
    level = number(space.block(root, 8), 5, 1)
    require(level <= _DEEPEST, "a tree too deep")
    addresses = [root]
    for depth in range(level, -1, -1):
        below: list[int] = []
        for address in addresses:
            head = space.block(address, 8)
            require(head.startswith(bytes((*b"TREE\0", depth))), "no tree of links")
            count = number(head, 6, 2)
            start = 8 + 2 * wide
            node = space.block(address, start + count * (long + wide) + long)
            steps = range(start + long, start + long + count * (long + wide), long + wide)
            below += [number(node, at, wide) for at in steps]
        addresses = below
    return addresses


def _symbols(address: int, names: bytes, space: Space) -> list[Link]:
    wide = space.address_width
    head = space.block(address, 8)
    require(head.startswith(b"SNOD\1"), "no symbol node")
    size = 2 * wide + 24
    count = number(head, 6, 2)
    node = space.block(address, 8 + count * size)
    found: list[Link] = []
    for at in range(8, 8 + count * size, size):
        start = number(node, at, wide)
        end = names.find(b"\0", start)
        require(start < end, "a name cut short")
        cached = number(node, at + 2 * wide, 4)
        require(cached <= _CACHED_SOFT, "an odd symbol")
        kind = _OTHER if cached == _CACHED_SOFT else HARD
        found.append(Link(names[start:end], kind, number(node, at + wide, wide), 0))
    return found
