"""Plan files that are gone: their steps keep their labels, and have no values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from icevirt.archive.facts import CatalogFacts
from icevirt.model import paths
from icevirt.model.strings import Strings
from icevirt.planning.combine.options import CombineSpec


def without_values(
    facts: CatalogFacts, spec: CombineSpec, absent: Collection[str], dimensions: Sequence[str]
) -> tuple[CatalogFacts, CombineSpec]:
    """Return facts in which absent files hold nothing but labels, and a spec that reserves steps.

    Args:
        facts: Of all files.
        spec: Of the plan.
        absent: URLs of files.
        dimensions: Along which files lie beside each other.
    """
    if not absent:
        return facts, spec
    gone = np.isin(facts.files.url.hashes(), Strings.of(sorted(absent)).hashes())
    labels = np.array([paths.name(each) in dimensions for each in facts.arrays.path.values])
    kept = labels[facts.arrays.path.codes] | ~gone[facts.arrays.file]
    options = replace(spec.options, missing="reserve")
    return replace(facts, arrays=facts.arrays.take(np.flatnonzero(kept))), replace(
        spec, options=options
    )
