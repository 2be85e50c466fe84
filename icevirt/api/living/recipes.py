"""Choose the recipe that an update goes by: a file of the caller's, or the one in the repository.

Whoever can write the repository can write its recipe. So it is run only if this user made it, or
says its digest, or if it runs nothing and reads only below directories that the caller names. What
it reads beside its sources, files that the dataset holds, is for `readable_places` to say.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icevirt.api.choices import Asked, Choices
from icevirt.api.commit_options import CommitOptions
from icevirt.api.pipeline.kept_recipe import KeptRecipe, recipe_named, recipe_of
from icevirt.api.recipe import load_recipe, read_recipe
from icevirt.api.trust.made_here import is_remembered, remembered_places
from icevirt.api.trust.readable_places import ReadablePlaces, below, places_named
from icevirt.archive.options import names
from icevirt.errors import FormatError, InvalidInputError
from icevirt.planning.remedies import of_arguments
from icevirt.storage.protocol import Storage

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


def followed(
    storage: Storage,
    record: Mapping[str, Any],
    *,
    group: str,
    recipe: str | os.PathLike[str] | None,
    trusted: str | None,
    authorize: Sequence[str],
) -> Followed:
    """Return the recipe to go by.

    Args:
        storage: The repository.
        record: What the snapshot of the last build says.
        group: Of the dataset.
        recipe: A file of the caller's.
        trusted: The digest of a recipe that the caller trusts.
        authorize: URLs that end in a slash, below which files may be read.

    Raises:
        InvalidInputError: There is no recipe that may be used, or it names no sources.
        FormatError: The repository's is damaged.
    """
    allowed = ReadablePlaces.of(authorize, remembered_places(storage.url))
    if recipe is not None:
        return _own(recipe, group, allowed)
    kept = recipe_named(storage, str(record.get("recipe", "")))
    try:
        held = read_recipe(kept.text, folder=Path("/"), shown=f"{storage.url} {kept.digest}")
    except InvalidInputError as error:
        raise FormatError(
            "the recipe of the dataset cannot be used",
            do=f"{error.do} Or pass a recipe of your own with recipe= (--recipe FILE).",
            cause=error.what,
            repo=storage.url,
        ) from error
    is_trusted = trusted == kept.digest or is_remembered(storage.url, kept.digest)
    if trusted is not None and trusted != kept.digest:
        raise InvalidInputError(
            "the recipe of the dataset is another one than you trust",
            fixes=[_trusting(kept)],
            do="Look at what changed before you trust it.",
            **_what_it_runs(held),
        )
    sources = _sources(held)
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
            do="They were read from stdin, from a table or from a catalog. Pass new files to"
            " icevirt append, or a recipe that names sources with recipe= (--recipe FILE).",
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
        each: value for name in _AUTHORITY for each, value in _of_authority(name, held).items()
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
    summary: dict[str, Any] = {"sources": list(_each(held.get("sources")))[:5]}
    for name in _AUTHORITY:
        summary |= _of_authority(name, held)
    if held.get("access"):
        summary["access"] = dict(held["access"])
    return summary


def _each(given: Any) -> Iterable[str]:
    return () if given is None else names(given)
