"""Make locations relative to a container (``vcc://name/path``), so an archive can move.

Spec: "Virtual chunk containers". Readers replace the container's name by its url_prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from icevirt.model.chunks import ChunkTable
from icevirt.model.container_coverage import begins
from icevirt.model.ranges import gather
from icevirt.model.strings import Strings


def with_names(table: ChunkTable, named: Sequence[tuple[str, str]]) -> ChunkTable:
    """Return references with the locations below the prefixes of containers as relative ones.

    Args:
        table: References with absolute locations.
        named: (url_prefix, name) of containers; the longest prefix that fits counts.
    """
    if not named or not len(table.locations):
        return table
    urls = relative(table.locations.url, named)
    return replace(table, locations=replace(table.locations, url=urls))


def relative(urls: Strings, named: Sequence[tuple[str, str]]) -> Strings:
    """Return URLs, those below a prefix as ``vcc://name/`` and what follows the prefix."""
    heads = [f"vcc://{name}/".encode() for _, name in named]
    data = np.concatenate([urls.data, np.frombuffer(b"".join(heads), np.uint8)])
    at = len(urls.data) + np.cumsum([0, *map(len, heads)])
    # each URL is put together of two pieces, the first of which is empty unless it is relative
    start = np.stack([urls.starts[:-1]] * 2, axis=1)
    length = np.stack([np.zeros(len(urls), np.int64), urls.lengths], axis=1)
    rest = np.arange(len(urls))
    for which in sorted(range(len(named)), key=lambda each: -len(named[each][0])):
        prefix = named[which][0].encode()
        hit = begins(urls, rest, prefix)
        rows, rest = rest[hit], rest[~hit]
        start[rows, 0], length[rows, 0] = at[which], len(heads[which])
        start[rows, 1] += len(prefix)
        length[rows, 1] -= len(prefix)
    joined, starts = gather(data, start.reshape(-1), length.reshape(-1))
    return Strings(joined, starts[::2].copy())
