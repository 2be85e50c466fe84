"""Choose which manifests of an array are worth being joined. Pure.

Appends leave small manifests that all arrays share. Joining the last few of an array costs what
they hold, so a large manifest is only joined to others that together hold about half as much: each
reference is then written a few times in the life of a dataset, whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from icevirt.model.snapshot import ArrayNode, ManifestRef

_WORTH = 2  # a manifest at most so many times as large as those behind it is joined to them


def tail_run(node: ArrayNode, fewest: int) -> tuple[ManifestRef, ...]:
    """Return the manifests at the end of an array that are joined; none if they are few.

    Args:
        node: The array.
        fewest: How many there have to be.
    """
    if not node.shape:
        return ()
    refs = sorted(node.manifests, key=lambda ref: [low for low, _ in ref.extents])
    count = held = 0
    for ref in reversed(refs):
        size = math.prod(high - low for low, high in ref.extents)
        if count and size > _WORTH * held:
            break
        count, held = count + 1, held + size
    return tuple(refs[len(refs) - count :]) if count >= max(2, fewest) else ()


def tails(nodes: Sequence[ArrayNode]) -> int:
    """Return the most manifests that one array has at its end to be joined."""
    return max((len(tail_run(node, 2)) for node in nodes), default=0)
