"""Make sure that the dimensions are named along which files follow one another, or propose some."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from icevirt.archive.facts import ArrayColumns, CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix
from icevirt.planning.axes import candidates
from icevirt.planning.axes.label_proposals import label_fixes, odd_names
from icevirt.planning.axes.positions import count_positions
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.remedies import fix, together
from icevirt.remedy_notation import write_code, write_option, write_remedy


def check_dimensions(facts: CatalogFacts, spec: CombineSpec, existing: Sequence[str]) -> None:
    """Make sure that files have the dimensions that are named.

    Raises:
        CombineError: None is named for several files, or a variable of none has one.
    """
    there = list_dimensions(facts.arrays)
    if len(facts.files) > 1 and not spec.concat_dim:
        labels = label_fixes(facts, tolerance=spec.tolerance)
        known = [
            *candidates.in_order_given(facts),
            *labels,
            *candidates.with_equal_labels(facts),
        ]
        fixes = [*{frozenset(each.flags): each for each in reversed(known)}.values()][::-1]
        if grids := [*candidates.other_grids(facts)]:
            raise _refuse_grids(facts, grids, labels)
        raise CombineError(
            f"{len(facts.files)} files but no dimension to concatenate along",
            fixes=fixes,
            do=odd_names(facts)
            or write_remedy(
                "Pass ",
                write_option("concat_dim"),
                "; labels say where files lie along a dimension that they do not have.",
            )
            if not fixes
            else "",
            first=facts.files.url[0],
            last=facts.files.url[len(facts.files) - 1],
            dimensions=there,
        )
    for name in existing:
        if name not in there:
            is_one = len(spec.concat_dim) == 1
            labels = label_fixes(facts, name) if is_one else []
            price = f"files are stacked along a new dimension {name}, in the order given"
            can_stack = is_one and spec.options.combine != "nested"
            stacked_as_given = [fix(price, combine="nested")] if can_stack else []
            raise CombineError(
                f"no variable has the dimension {name!r}",
                fixes=(*_propose_similar(name, there, spec), *labels, *stacked_as_given),
                do=write_remedy(
                    "You can also name another dimension that the files have. To stack"
                    " them along a new one, give its labels: ",
                    write_code('combine_options={"labels": ...}', "--labels"),
                    ".",
                ),
                dimensions=there,
            )


def _refuse_grids(
    facts: CatalogFacts, grids: Sequence[candidates.UnlikeGrids], labels: Sequence[Fix]
) -> CombineError:
    """Return the error about files of several grids, which follow one another nowhere."""
    price = "files of each grid get a group; nothing more is stored"
    stacked = [each for each in labels if "labels" in each.arguments.get("combine_options", {})]
    groups = [together(each, fix(price, on_mismatch="eras")) for each in stacked]
    joined = candidates.along_positions(facts)
    positions = [each for each in joined if _count_positions(facts, each)]
    more = [each for each in joined if each not in positions]
    return CombineError(
        f"{len(facts.files)} files of several grids: they have other lengths along"
        f" {', '.join(map(str, grids))}, and their other coordinates are equal",
        do=write_remedy(
            "Build the files of each grid into a group of its own: ",
            write_code('group="..."', "--group NAME"),
            ". If the grids are parts of one, name the dimension: ",
            write_code('concat_dim="..."', "--concat-dim NAME"),
            ".",
        ),
        fixes=[*positions, *stacked, *groups, *more, *candidates.groups_in_order(facts, price)],
        first=facts.url_of(grids[0].rows[0]),
        first_length=grids[0].lengths[0],
        other=facts.url_of(grids[0].rows[1]),
        other_length=grids[0].lengths[1],
    )


def _count_positions(facts: CatalogFacts, fix: Fix) -> bool:
    """Say whether labels along the dimensions of a fix begin anew in each file."""
    return all(count_positions(facts, name) for name in fix.arguments["concat_dim"])


def _propose_similar(name: str, there: Sequence[str], spec: CombineSpec) -> list[Fix]:
    others = [each for each in there if each not in spec.concat_dim]
    return [
        fix(
            f"files have the dimension {other}",
            concat_dim=[other if each == name else each for each in spec.concat_dim],
        )
        for other in difflib.get_close_matches(name, others, n=1)
    ]


def list_dimensions(arrays: ArrayColumns) -> list[str]:
    """Return the dimensions of all arrays, by name."""
    schemas = map(ArraySchema.loads, arrays.schema.values)
    return sorted({name for each in schemas for name in each.dimension_names if name is not None})
