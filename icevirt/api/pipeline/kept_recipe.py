"""Keep the recipe of a build in its repository, so that the dataset can be made again.

A recipe is an immutable object named by the digest of its text. It is data: whoever can write the
repository can write another one. So whoever runs it says which digest they trust.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from icevirt.api.choices import Asked
from icevirt.api.option_objects import BY_KEYWORD
from icevirt.api.pipeline.recipe_text import VERSION, each_moved, inward, toml
from icevirt.connect.urls import as_local_path, is_url, spelled
from icevirt.errors import FormatError, InvalidInputError, ObjectNotFoundError
from icevirt.objects.source_lists.globs import is_pattern
from icevirt.objects.source_lists.listing import SUFFIXES
from icevirt.repo.layout import WORK
from icevirt.storage.protocol import Storage

DIGEST = re.compile("[0-9a-f]{40}")
"""Name of a recipe; it is part of a path."""

_OF_ONE_COMMIT = ("message", "metadata", "allow_changes")
_LARGE = 1 << 26  # bytes of a recipe; a longer one is none


@dataclass(frozen=True)
class KeptRecipe:
    """The text of a recipe, as a repository keeps it."""

    text: str

    @cached_property
    def digest(self) -> str:
        """The name of the recipe, which covers every letter of it."""
        return hashlib.blake2b(self.text.encode(), digest_size=20).hexdigest()


def recipe_of(asked: Asked) -> KeptRecipe:
    """Return the recipe of a build, without what no file can hold: credentials, tables, closures.

    Paths are absolute. Where a source cannot be listed again, the recipe names no sources.
    """
    sources = [*_spelled(asked.named)] if is_listable(asked.named) else []
    choices = asked.choices
    options = {
        "scan_options": choices.scan.chosen(),
        "combine_options": _named(choices.combine.chosen()),
        "commit_options": asked.commit.chosen(),
    }
    for name in _OF_ONE_COMMIT:
        options["commit_options"].pop(name, None)
    held: dict[str, Any] = {
        "sources": sources,
        "group": asked.group if asked.group != "/" else None,
        "concat_dim": list(choices.dimensions),
        "access": asked.words,
        **options,
    }
    folder = cache(Path.cwd)  # it may be gone where no path is relative to it
    moved = each_moved(held, lambda each: inward(each, folder()))
    return KeptRecipe(toml({"version": VERSION, **dict(_storable(moved))}))


def continued_recipe(
    storage: Storage, record: Mapping[str, Any], asked: Asked, given: Mapping[str, Any]
) -> KeptRecipe | None:
    """Return the recipe of a dataset with the options that an append changes.

    Args:
        storage: The repository.
        record: What the last build said.
        asked: The append, of which only options count.
        given: The options of the call by name, and ``concat_dim``.

    Returns:
        None where the repository has no recipe.
    """
    try:
        known = recipe_named(storage, str(record.get("recipe", "")))
        document = tomllib.loads(known.text)
    except (InvalidInputError, FormatError, ValueError):
        return None
    new = tomllib.loads(recipe_of(asked).text)
    if given.get("concat_dim") is not None:
        document["concat_dim"] = new.get("concat_dim", [])
    for keyword, options in BY_KEYWORD.items():
        chosen = [*(options.of(given.get(keyword)).chosen())]
        there = new.get(keyword, {})
        if table := {
            **document.get(keyword, {}),
            **{name: there[name] for name in chosen if name in there},
        }:
            document[keyword] = table
    found = KeptRecipe(toml(document))
    return known if tomllib.loads(known.text) == document else found


def _named(combine: dict[str, Any]) -> dict[str, Any]:
    """Return options with the name of a function in its place; one that has none is left out."""
    function = combine.get("preprocess")
    if function is not None and not isinstance(function, str):
        combine.pop("preprocess")
        name = getattr(function, "__qualname__", "")
        if name.isidentifier() and getattr(function, "__module__", "__main__") != "__main__":
            combine["preprocess"] = f"{function.__module__}:{name}"
    return combine


def _storable(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what TOML can hold; options that it cannot are left out one by one."""
    for key, value in document.items():
        if key in BY_KEYWORD:
            value = dict(_storable(value))  # noqa: PLW2901  # the table without them
        is_empty = isinstance(value, Mapping | list | tuple | str) and not value
        if value is None or is_empty:
            continue
        try:
            toml({key: value})
        except InvalidInputError:
            continue
        yield key, value


def keep_recipe(storage: Storage, recipe: KeptRecipe) -> None:
    """Write a recipe, before the commit that names it."""
    storage.put(_path(recipe.digest), recipe.text.encode())


def recipe_named(storage: Storage, digest: str) -> KeptRecipe:
    """Return the recipe that a snapshot names.

    Raises:
        InvalidInputError: The repository does not have it.
        FormatError: It is another one than its name says.
    """
    try:
        raw = storage.get(_path(digest)) if DIGEST.fullmatch(digest) else None
    except ObjectNotFoundError:
        raw = None
    if raw is None:
        raise InvalidInputError(
            "the repository does not say how its dataset was made",
            do="An earlier version of icevirt built it, or the recipe was deleted: pass a recipe"
            " of your own with recipe= (--recipe FILE).",
            repo=storage.url,
        )
    try:
        found = KeptRecipe(raw.decode() if len(raw) <= _LARGE else "")
    except UnicodeDecodeError:
        found = KeptRecipe("")
    if found.digest != digest:
        raise FormatError(
            "the recipe of a dataset is not the one that its snapshot names",
            do="Pass a recipe of your own with recipe= (--recipe FILE).",
            repo=storage.url,
            recipe=digest,
        )
    return found


def kept_or_none(storage: Storage, record: Mapping[str, Any]) -> KeptRecipe | None:
    """Return the recipe of what a build recorded, for a commit that goes on with it."""
    with suppress(InvalidInputError, FormatError):
        return recipe_named(storage, str(record.get("recipe", "")))
    return None


def _path(digest: str) -> str:
    return f"{WORK[0]}/recipes/{digest}.toml"


# -- sources -------------------------------------------------------------------------------------


def each_source(sources: Any) -> list[Any]:
    """Return sources one by one."""
    is_many = isinstance(sources, Iterable) and not (
        isinstance(sources, str | bytes | os.PathLike) or hasattr(sources, "__arrow_c_stream__")
    )
    return list(sources) if is_many and isinstance(sources, list | tuple | set) else [sources]


def is_listable(sources: Any) -> bool:
    """Say whether sources can be listed again: stdin, tables, iterators and nested lists cannot."""
    return all(
        isinstance(each, str | os.PathLike) and os.fspath(each) != "-"
        for each in each_source(sources)
    )


def _spelled(sources: Any) -> Iterator[str]:
    for each in each_source(sources):
        text = os.fspath(each)
        mark, bare = ("@", text[1:]) if text.startswith("@") else ("", text)
        yield mark + (bare if is_url(spelled(bare)) else _local(bare))


def _local(path: str) -> str:
    return as_local_path(path) + ("/" if path.endswith("/") else "")


def note_of(sources: Any) -> str:
    """Return what a build says about updates of its dataset; "" where there is nothing to say."""
    if not is_listable(sources):
        return (
            "an update cannot list these sources again (stdin, a table or a catalog): pass new"
            " files to `icevirt append`, or a recipe to `icevirt update`"
        )
    texts = [*_spelled(sources)]
    if len(texts) < 2 or any(map(names_many, texts)):  # a single one was meant
        return ""
    return (
        f"an update looks at exactly these {len(texts):,} files: to find new ones, too, build from"
        " their directory, or from a pattern in quotes"
    )


def names_many(source: str) -> bool:
    """Say whether a source stands for whatever is there: a list, a pattern or a directory."""
    if source.startswith("@") or source.endswith("/"):
        return True
    if is_url(source) and not source.startswith("file://"):
        return is_pattern(source.partition("://")[2]) or not source.lower().endswith(SUFFIXES)
    path = as_local_path(source)
    return os.path.isdir(path) or (is_pattern(path) and not os.path.lexists(path))
