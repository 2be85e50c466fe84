"""Decide with which scanner the files of a dataset are read again, without asking the user.

A record says which scanner described the files, and anybody who can write the repository can write
it. The name of an installed scanner only chooses among what is installed. Every other name, also
what an installed scanner is given behind a colon, may import code: it counts if a recipe that this
user made on this machine says the same.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from icevirt.api.dataset.records import recipe_named
from icevirt.errors import FormatError, InvalidInputError
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.made_here import identify, is_remembered
from icevirt.scan.registry import find_named, is_installed
from icevirt.storage.protocol import Storage


def find_scanner(storage: Storage, record: Mapping[str, Any]) -> str | None:
    """Return the scanner that the last build of a dataset named; "" where content decided.

    Args:
        storage: The repository.
        record: What the build said.

    Returns:
        None where only the caller may say whether it is run: see `recorded_scanner`.

    Raises:
        InvalidInputError: It is not installed.
        ScanError: What it needs is not installed.
    """
    name = recorded_scanner(record)
    if not name or is_installed(name):
        return name
    if ":" not in name:
        raise InvalidInputError(
            f"the dataset was scanned with {name!r}, and no scanner of that name is installed",
            do=write_remedy(
                "Install the package that brings it (its entry point of the group"
                " icevirt.scanners has that name), or name another: ",
                write_code('scanner="package.module:Class"', "--scanner package.module:Class"),
                ".",
            ),
            repo=storage.url,
            scanner=name,
        )
    if not _is_named_here(storage, record, name):
        return None
    find_named(name)  # here, where an error says what is missing
    return name


def recorded_scanner(record: Mapping[str, Any]) -> str:
    """Return the name of the scanner in a record, unchecked."""
    scan = record.get("scan")
    name = scan.get("scanner") if isinstance(scan, Mapping) else None
    return name if isinstance(name, str) else ""


def _is_named_here(storage: Storage, record: Mapping[str, Any], name: str) -> bool:
    digest = str(record.get("recipe", ""))
    if not is_remembered(identify(storage), digest):
        return False
    with suppress(InvalidInputError, FormatError, ValueError, AttributeError):
        recipe = tomllib.loads(recipe_named(storage, digest).text)
        named: object = recipe.get("scan_options", {}).get("scanner")
        return named == name
    return False
