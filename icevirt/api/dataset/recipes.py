"""Keep the recipe of a build in its repository, and choose the one that an update goes by.

A recipe is an immutable object named by the digest of its text. Every writer of the repository can
add another one. So a recipe is followed only if this user made it, or passes its digest, or if it
runs nothing and reads only below directories that the caller names. What it reads beside its
sources, files that the dataset holds, is for `readable_places` to say.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from icevirt.api.choices import Asked, Choices
from icevirt.api.commit_options import BY_KEYWORD, CommitOptions
from icevirt.api.dataset.records import KeptRecipe, recipe_named
from icevirt.api.recipe import VERSION, each_moved, inward, load_recipe, read_recipe, toml
from icevirt.api.sources.inputs import each_source, is_listable, names_many
from icevirt.api.trust.readable_places import ReadablePlaces, below, common, places_named
from icevirt.archive.options import names
from icevirt.connect.urls import as_local_path, is_url, spell
from icevirt.errors import FormatError, InvalidInputError
from icevirt.planning.remedies import of_arguments
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.authorization import refuse_useless
from icevirt.repo.made_here import identify, is_remembered, read_places
from icevirt.scan.registry import is_installed
from icevirt.storage.protocol import Storage

_OF_ONE_COMMIT = ("message", "metadata", "allow_changes")


def recipe_of(asked: Asked) -> KeptRecipe:
    """Return the recipe of a build, without what no file can hold: credentials, tables, closures.

    Paths are absolute. Where a source cannot be listed again, the recipe names no sources.
    """
    sources = [*_spell(asked.named)] if is_listable(asked.named) else []
    choices = asked.choices
    options = {
        "scan_options": choices.scan.list_chosen(),
        "combine_options": _name_function(choices.combine.list_chosen()),
        "commit_options": asked.commit.list_chosen(),
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


def continue_recipe(
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
        chosen = [*(options.of(given.get(keyword)).list_chosen())]
        there = new.get(keyword, {})
        if table := {
            **document.get(keyword, {}),
            **{name: there[name] for name in chosen if name in there},
        }:
            document[keyword] = table
    found = KeptRecipe(toml(document))
    return known if tomllib.loads(known.text) == document else found


def _name_function(combine: dict[str, Any]) -> dict[str, Any]:
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


def _spell(sources: Any) -> Iterator[str]:
    for each in each_source(sources):
        text = os.fspath(each)
        mark, bare = ("@", text[1:]) if text.startswith("@") else ("", text)
        yield mark + (
            bare
            if is_url(spell(bare))
            else as_local_path(bare) + ("/" if bare.endswith("/") else "")
        )


def note_of(sources: Any) -> str:
    """Return what a build says about updates of its dataset; "" where there is nothing to say."""
    if not is_listable(sources):
        return (
            "an update cannot list these sources again (stdin, a table or a catalog): pass new"
            " files to `icevirt append`, or a recipe to `icevirt update`"
        )
    texts = [*_spell(sources)]
    if len(texts) < 2 or any(map(names_many, texts)):  # a single one was meant
        return ""
    return (
        f"an update looks at exactly these {len(texts):,} files: to find new ones, too, build from"
        " their directory, or from a pattern in quotes"
    )


_AUTHORITY = {
    "scan_options": ("scanner", "allow_references_to"),
    "combine_options": ("preprocess",),
    "commit_options": ("publish_as", "promote"),
}
"""Options that say what is run, what is read, and what readers see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The recipe that an update goes by."""

    recipe: KeptRecipe
    sources: tuple[str, ...]
    named: tuple[str, ...]  # URLs of directories that the operator's own recipe names
    places: ReadablePlaces  # below which files of the dataset may be read
    is_trusted: bool
    is_own: bool  # a file of the caller's
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # beside those recorded
    concat_dim: Any = None
    access: Mapping[str, Any] = field(default_factory=dict)


def choose(
    storage: Storage,
    record: Mapping[str, Any],
    *,
    group: str,
    recipe: str | os.PathLike[str] | None,
    trusted: str | None,
    authorize: Sequence[str],
    files: Callable[[], Iterable[str]],
) -> Followed:
    """Return the recipe to go by.

    Args:
        storage: The repository.
        record: What the snapshot of the last build says.
        group: Of the dataset.
        recipe: A file of the caller's.
        trusted: The digest of a recipe that the caller trusts.
        authorize: URLs that end in a slash, below which files may be read.
        files: Returns the URLs of the dataset's files.

    Raises:
        InvalidInputError: There is no recipe that may be used, or it names no sources.
        UnauthorizedError: None of all that lies below a prefix.
        FormatError: The repository's is damaged.
    """
    allowed = ReadablePlaces.of(authorize, read_places(identify(storage)))
    if recipe is not None:
        own = _own(recipe, group, allowed)
        _refuse_mistaken(authorize, own.sources, files)
        return own
    kept = recipe_named(storage, str(record.get("recipe", "")))
    try:
        held = read_recipe(kept.text, folder=Path("/"), shown=f"{storage.url} {kept.digest}")
    except InvalidInputError as error:
        raise FormatError(
            "the recipe of the dataset cannot be used",
            do=write_remedy(
                error.do,
                " Or pass a recipe of your own with ",
                write_code("recipe=", "--recipe FILE"),
                ".",
            ),
            cause=error.what,
            repo=storage.url,
        ) from error
    is_trusted = trusted == kept.digest or is_remembered(identify(storage), kept.digest)
    if trusted is not None and trusted != kept.digest:
        raise InvalidInputError(
            "the recipe of the dataset is another one than you trust",
            fixes=[_trusting(kept)],
            do="Look at what changed before you trust it.",
            **_what_it_runs(held),
        )
    sources = _sources(held)
    _refuse_mistaken(authorize, sources, files)
    if not is_trusted:
        _refuse_authority(storage, kept, held, sources, allowed)
    named = places_named(sources) if is_trusted else ()
    return Followed(
        recipe=kept,
        sources=sources,
        named=named,
        places=ReadablePlaces.of(named, allowed.prefixes),
        is_trusted=is_trusted,
        is_own=False,
        options={name: _of_authority(name, held) for name in _AUTHORITY},
        access=held.get("access", {}),
    )


def _refuse_mistaken(
    authorize: Sequence[str], sources: Sequence[str], files: Callable[[], Iterable[str]]
) -> None:
    """Refuse a prefix below which neither sources nor files of the dataset lie."""
    named = [below(each) for each in sources if not each.startswith("@")]
    rest = [each for each in authorize if not any(place.startswith(each) for place in named)]
    if rest := [each for each in rest if not any(url.startswith(each) for url in files())]:
        refuse_useless(
            rest,
            list(dict.fromkeys([*named, *common(files())])),
            lambda near: of_arguments({"authorize": [near]}, "reads what lies there"),
        )


def _own(recipe: str | os.PathLike[str], group: str, allowed: ReadablePlaces) -> Followed:
    held = load_recipe(recipe)
    sources = _sources(held)
    named = places_named(sources)
    asked = Asked(
        sources=list(sources),
        choices=Choices.of(
            held.get("concat_dim"), held.get("scan_options"), held.get("combine_options")
        ),
        commit=CommitOptions.of(held.get("commit_options")),
        group=group,
        access=held.get("access"),
    )
    return Followed(
        recipe=recipe_of(asked),
        sources=sources,
        named=named,
        places=ReadablePlaces.of(named, allowed.prefixes),
        is_trusted=True,
        is_own=True,
        options={name: held.get(name, {}) for name in _AUTHORITY},
        concat_dim=held.get("concat_dim"),
        access=held.get("access", {}),
    )


def _sources(held: Mapping[str, Any]) -> tuple[str, ...]:
    found = held.get("sources") or ()
    sources = (found,) if isinstance(found, str) else tuple(found)
    if not sources or not all(isinstance(each, str) and each != "-" for each in sources):
        raise InvalidInputError(
            "the dataset was made of sources that cannot be listed again",
            do=write_remedy(
                "They were read from stdin, from a table or from a catalog. Pass new"
                " files to icevirt append, or a recipe that names sources with ",
                write_code("recipe=", "--recipe FILE"),
                ".",
            ),
        )
    return sources


def _of_authority(name: str, held: Mapping[str, Any]) -> dict[str, Any]:
    options = held.get(name, {})
    return {each: options[each] for each in _AUTHORITY[name] if each in options}


def _refuse_authority(
    storage: Storage,
    kept: KeptRecipe,
    held: Mapping[str, Any],
    sources: Sequence[str],
    allowed: ReadablePlaces,
) -> None:
    """Refuse a recipe of others that runs something, or reads elsewhere than the caller said.

    A list says only when it is read, and its files are looked at, where these lie.
    """
    options = {
        each: value
        for name in _AUTHORITY
        for each, value in _of_authority(name, held).items()
        if each != "scanner" or not is_installed(value)
    }
    outside = [each for each in sources if each.startswith("@") or not allowed.covers(below(each))]
    if not options and not held.get("access") and not outside:
        return
    raise InvalidInputError(
        "you did not make the recipe of the dataset on this machine, so it is not run",
        fixes=[
            _trusting(kept),
            of_arguments({"recipe": "recipe.toml"}, "goes by a recipe of your own"),
        ],
        do="Anyone who can write the repository could have chosen what is read and run here.",
        repo=storage.url,
        **_what_it_runs(held),
    )


def _trusting(kept: KeptRecipe) -> Any:
    return of_arguments(
        {"trust_recipe": kept.digest}, "goes by it, if you trust these sources and functions"
    )


def _what_it_runs(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a recipe reads and runs, for a message."""
    summary: dict[str, Any] = {"sources": list(names(held.get("sources") or ()))[:5]}
    for name in _AUTHORITY:
        summary |= _of_authority(name, held)
    if held.get("access"):
        summary["access"] = dict(held["access"])
    return summary
