"""Place files by the nested lists that a user gave, outermost list first.

As xarray's ``combine="nested"``: coordinates do not order anything, and new dimensions need no
labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.errors import InvalidInputError
from icevirt.planning.axes.new_dimensions import Labels, NewDimension, array_of_labels, refuse_known


def nested_places(
    facts: CatalogFacts, dimensions: Sequence[str], nest: Mapping[str, tuple[int, ...]] | None
) -> NDArray[np.int64]:
    """Return the place of each file along each dimension, shape (files, dimensions).

    Without a nest, which one dimension does not need, files lie in the order given.
    """
    if nest is None:
        return np.arange(len(facts.files), dtype=np.int64)[:, None]
    places = [nest[url] for url in facts.files.url]
    return np.array(places, np.int64).reshape(len(places), len(dimensions))


def nested_dimension(
    facts: CatalogFacts, name: str, place: NDArray[np.int64], labels: Labels | None
) -> NewDimension:
    """Return a new dimension along which files lie where a person put them.

    Raises:
        InvalidInputError: The labels are not listed, one for each place.
        CombineError: The files have the dimension already.
    """
    count = int(place.max(initial=-1)) + 1
    values = None
    refuse_known(facts, name, None)
    if labels is not None:
        if isinstance(labels, str) or len(labels) != count:
            raise InvalidInputError(
                f"labels of nested files must be a list with one label for each of the {count} "
                f"positions along {name!r}",
                do='Correct them, or place files by their own labels with combine="by_coords".',
                labels=labels if isinstance(labels, str) else list(labels)[:10],
            )
        values = array_of_labels(list(labels))
    everything = np.arange(len(facts.files))
    return NewDimension(name=name, cell=place, count=count, values=values).take(everything)
