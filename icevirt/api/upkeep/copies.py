"""Say which copies of a variable `icevirt.materialize` makes beside it: a twin, or coarser ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from icevirt.api.storing import ArrayStorage, StoredIn
from icevirt.errors import AlreadyExistsError, InvalidInputError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.snapshot import ArrayNode, GroupNode, Snapshot, document_of
from icevirt.model.twins import path_of_twin
from icevirt.planning.coarsening import Coarsening
from icevirt.planning.levels import Level, group_json
from icevirt.planning.stored_form import StoredForm, json_of_form, refuse_misfit
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.repo.session import Session
from icevirt.tasks.copy_chunks import CopyTask, read_weights


def twin_of(
    snapshot: Snapshot,
    node: ArrayNode,
    dataset: StoredIn | None,
    chunks: Mapping[str, int] | None,
    where: Mapping[str, Any] | None,
) -> tuple[str, ObjectId8]:
    """Return path and id of the twin of a variable.

    Raises:
        InvalidInputError: It needs chunks of its own, or nothing would keep it in step.
        AlreadyExistsError: Another array lies there.
    """
    path = path_of_twin(node.path)
    if dataset is None or not chunks or where:
        raise InvalidInputError(
            "a twin is of a whole variable of a dataset, in chunks of its own",
            do=write_remedy(
                "Pass ",
                write_code('chunks={"time": 365}', "--chunks time=365"),
                " without ",
                write_option("where"),
                ", for a variable that icevirt.build made.",
            ),
            variable=node.path,
        )
    return path, _own_id(snapshot, node, dataset, path)


def _own_id(snapshot: Snapshot, node: ArrayNode, dataset: StoredIn, path: str) -> ObjectId8:
    """Return the id of a copy of a variable.

    Raises:
        AlreadyExistsError: Another array lies there.
    """
    key, there = ObjectId8.of_content(dataset.build_id.encode(), path.encode()), snapshot.find(path)
    # a variable of the files may have that name, and then the same id
    is_ours = dataset.forms.get(path, StoredForm()).of == node.path
    if there is not None and not (is_ours and there.id == key):
        raise AlreadyExistsError(
            "the copy would have the name of another array",
            do="Move that array, or delete it, and run this again.",
            variable=node.path,
            copy=path,
        )
    return key


@dataclass(frozen=True, slots=True)
class StoredWork:
    """An array that is to be stored, and how; None where it is a region of it."""

    storage: ArrayStorage
    form: StoredForm | None


def blocks_of(
    node: ArrayNode,
    dataset: StoredIn | None,
    coarsen: Mapping[str, int] | None,
    levels: int,
    *,
    is_apart: bool,
) -> tuple[dict[str, int], ...]:
    """Return the blocks of each coarser copy, by dimension; of none where none is asked for.

    Raises:
        InvalidInputError: There can be no such copies.
    """
    if coarsen is None and levels == 1:
        return ()
    names, growing = node.dimension_names or (), () if dataset is None else dataset.growing
    if dataset is None or not is_apart or not coarsen or levels < 1:
        raise InvalidInputError(
            "coarser copies lie beside a whole variable of a dataset",
            do=write_remedy(
                "Pass ",
                write_code(
                    'beside=True, coarsen={"lat": 2, "lon": 2}', "--beside --coarsen lat=2,lon=2"
                ),
                " without ",
                write_option("where"),
                ", and one level or more, for a variable that icevirt.build made.",
            ),
            variable=node.path,
        )
    for name, factor in coarsen.items():
        if name not in names or type(factor) is not int or factor < 2 or name in growing:
            why = " that does not grow" if name in growing else ""
            raise InvalidInputError(
                f"this is not a number of elements, two or more, along a dimension{why}",
                do=write_remedy(
                    "Pass ",
                    write_code('coarsen={"lat": 2}', "--coarsen lat=2"),
                    ", with names of dimensions along which no files are added.",
                ),
                variable=node.path,
                dimensions=[name for name in names if name not in growing],
                found=f"{name}={factor}",
            )
    return tuple(
        {name: factor**power for name, factor in coarsen.items()} for power in range(1, levels + 1)
    )


def store_levels(
    base: CopyTask, session: Session, dataset: StoredIn, levels: Iterable[Level]
) -> dict[str, StoredWork]:
    """Return how coarser copies are stored, and coordinates beside them, by path.

    Raises:
        AlreadyExistsError: Another array lies there.
        UnsupportedError: The values have no mean.
        InvalidInputError: A chunk would be too large.
    """
    copies = {path: each for level in levels for path, each in level.arrays.items()}
    return {path: _coarsen(base, session, dataset, path, *each) for path, each in copies.items()}


def _coarsen(  # noqa: PLR0917 - a copy, and of what
    base: CopyTask,
    session: Session,
    dataset: StoredIn,
    path: str,
    node: ArrayNode,
    how: Coarsening,
    edges: tuple[int, ...],
) -> StoredWork:
    """Return how a coarser copy is stored, or a coordinate beside it.

    Raises:
        AlreadyExistsError: Another array lies there.
        UnsupportedError: The values have no mean.
        InvalidInputError: A chunk would be too large.
    """
    form = StoredForm(chunk_shape=edges, codec="zstd", of=node.path, coarsen=how)
    refuse_misfit(form, node.path, document_of(node))
    copy = replace(
        base,
        node=node,
        beside=(path, _own_id(session.snapshot, node, dataset, path)),
        coarsen=how,
        weights=read_weights(session, how),
        region=tuple((0, count) for count in node.num_chunks),
    )
    zarr_json = json_of_form(form, node.user_data, path)
    return StoredWork(ArrayStorage(copy=copy, zarr_json=zarr_json, growing=dataset.growing), form)


def new_groups(base: Snapshot, groups: Sequence[str]) -> list[GroupNode]:
    """Return the groups that are not there yet, and those above them."""
    every = {above for each in groups for above in (*paths.ancestors(each), each)}
    return [
        GroupNode(id=ObjectId8.random(), path=path, user_data=group_json(None, {}))
        for path in sorted(every)
        if base.find(path) is None
    ]
