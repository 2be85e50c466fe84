"""Store catalog parts: scan tasks write them, plans read them.

Parquet through pyarrow and the repository's own storage, because pip's Spark has no cloud file
systems. The bytes of a part depend on its content only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icevirt.archive import catalog
from icevirt.archive.blocks.packing import PackedBlock
from icevirt.catalog import references as refs
from icevirt.catalog.facts_beside import write_facts
from icevirt.catalog.parquet import encode_table
from icevirt.errors import AlreadyExistsError, FormatError, NotFoundError, ObjectNotFoundError
from icevirt.model.json import loads
from icevirt.storage.protocol import Storage

_MARK = "catalog.json"
_KEY = "icevirt_catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTables:
    """The rows of a part, as columns by name, in the order of `icevirt.archive.catalog`."""

    files: Mapping[str, Sequence[Any]]
    arrays: Mapping[str, Sequence[Any]]
    refs: Iterable[tuple[str, PackedBlock]]  # (path of the array, block)
    more: Sequence[Mapping[str, Any]] = ()  # facts beside, a row each


def mark(storage: Storage) -> None:
    """Make the storage a catalog, or check that it is one of this version.

    Raises:
        AlreadyExistsError: It holds something that is no catalog.
        FormatError: It is a catalog of another version.
    """
    if storage.exists():
        check_mark(storage)
        return
    try:
        storage.put(_MARK, json.dumps({_KEY: catalog.VERSION}).encode())
    except ObjectNotFoundError:  # nothing but empty directories is there, and one has this name
        _version(storage)
        raise


def check_mark(storage: Storage) -> None:
    """Check that the storage is a catalog of this version.

    Raises:
        NotFoundError: Nothing is there.
        AlreadyExistsError: It holds something that is no catalog.
        FormatError: It is a catalog of another version.
    """
    if not storage.exists():
        raise NotFoundError("no such catalog", do="Check the path.", catalog=storage.url)
    found = _version(storage)
    if found not in (catalog.BEFORE, catalog.VERSION):
        raise FormatError(
            "the catalog was written by another version of icevirt",
            do="Name another directory for the catalog.",
            catalog=storage.url,
            found=found,
            expected=catalog.VERSION,
        )


def version_of(storage: Storage) -> int:
    """Return the version of the catalog in a storage, this one where there is none yet."""
    return int(_version(storage)) if storage.exists() else catalog.VERSION


def _version(storage: Storage) -> Any:
    """Return the version in the mark; other formats have a ``catalog.json`` too."""
    try:
        return loads(storage.get(_MARK))[_KEY]
    except (ObjectNotFoundError, ValueError, KeyError, TypeError) as error:
        raise AlreadyExistsError(
            "the path of the catalog holds something else",
            do="Name an empty or new directory for the catalog.",
            catalog=storage.url,
        ) from error


def complete_parts(storage: Storage) -> frozenset[str]:
    """Return the names of the parts whose three tables are there."""
    names = (info.path for info in storage.list("files"))
    return frozenset(
        name.removeprefix("files/").removesuffix(".parquet")
        for name in names
        if name.endswith(".parquet")
    )


def write_part(storage: Storage, run: str, tables: PartTables) -> str:
    """Write what was found in a run of files; it counts once its ``files`` table is there.

    Returns the name of the part. It covers the content, so that a task that was thought dead and
    writes after its successor found something else replaces none of its tables.
    """
    packed, arrays = refs.encode(tables.refs, run), encode_table(tables.arrays, catalog.ARRAYS, run)
    name = f"{run}-{hashlib.blake2b(packed + arrays, digest_size=8).hexdigest()}"
    storage.put(catalog.path_of("refs", name), packed)
    storage.put(catalog.path_of("arrays", name), arrays)
    write_facts(storage, name, tables.more)  # before the part counts: nobody looks for them again
    storage.put(catalog.path_of("files", name), encode_table(tables.files, catalog.FILES, run))
    return name
