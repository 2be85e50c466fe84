"""Decide what moving an archive from one URL prefix to another changes.

References below a container's name follow the configuration. All others, and those whose file has
another checksum at its new place, are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.connect.urls import local_path
from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import (
    SCHEMES,
    ObjectStoreConfig,
    VirtualChunkContainer,
    local_filesystem_store,
)
from icevirt.model.strings import Strings
from icevirt.planning.containers import absolute, merged, rebased, relative

type Containers = Mapping[str, VirtualChunkContainer]
"""By url_prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """Where an archive was, where it is, and what the configuration says before and after."""

    old: str  # url_prefix
    new: str  # url_prefix
    before: Containers
    after: Containers
    renamed: tuple[tuple[VirtualChunkContainer, VirtualChunkContainer], ...]  # by their name

    @property
    def readable_before(self) -> Containers:
        """The containers before, and one for the old place where the one with a name moved."""
        if any(self.old.startswith(each) or each.startswith(self.old) for each in self.before):
            return self.before
        left = VirtualChunkContainer(self.old, _store(self.old, None, None, None))
        return {**self.before, self.old: left}

    def absolute(self, urls: Strings) -> Strings:
        """Return locations as absolute URLs of the old place."""
        return absolute(urls, named(self.before.values()))

    def follows(self, urls: Strings) -> NDArray[np.bool_]:
        """Say which locations, as references hold them, are relative to a container that moves."""
        found = np.zeros(len(urls), np.bool_)
        for each, _ in self.renamed:
            found |= urls.begin_with(f"vcc://{each.name}/".encode())
        return found

    def moved(self, urls: Strings) -> Strings:
        """Return absolute URLs, those below the old prefix below the new one."""
        return rebased(urls, [(self.old, self.new)])

    def written(self, urls: Strings) -> Strings:
        """Return absolute URLs as references hold them: relative to a container that has a name."""
        return relative(urls, named(self.after.values()))


def named(containers: Iterable[VirtualChunkContainer]) -> list[tuple[str, str]]:
    """Return (url_prefix, name) of the containers that have a name."""
    return [(each.url_prefix, each.name) for each in containers if each.name is not None]


def relocation(
    containers: Containers, old: str, new: str, store: ObjectStoreConfig | None = None
) -> Relocation:
    """Decide what happens to the containers of a repository.

    Containers with a name that lie below the old prefix move with their files. Others stay, for
    older snapshots point below them; new ones are added where none covers the new prefix.

    Args:
        containers: Of the configuration, by url_prefix.
        old: The url_prefix below which the files were.
        new: The one below which they are, with the same paths.
        store: How the new place is reached; by default as URLs of its scheme usually are.

    Raises:
        InvalidInputError: One prefix lies below the other, nobody can read URLs of the new one, or
            another container has the name or the prefix.
    """
    if old.startswith(new) or new.startswith(old):
        raise InvalidInputError(
            "one of the two prefixes lies below the other, so a second run would move files twice",
            do="Name the deepest folders that differ, one after the other.",
            old=old,
            new=new,
        )
    below = [each for prefix, each in containers.items() if prefix.startswith(old)]
    after = dict(containers)
    renamed = []
    for each in below:
        prefix = new + each.url_prefix.removeprefix(old)
        here = containers.get(prefix)
        if each.name is not None:
            if here is not None and here.name not in (None, each.name):
                raise _taken(each, here)
            wanted = VirtualChunkContainer(prefix, _store(prefix, store, here, each), each.name)
            del after[each.url_prefix]
            after[prefix] = wanted
            renamed.append((each, wanted))
        elif not any(prefix.startswith(other) for other in after):
            wanted = VirtualChunkContainer(prefix, _store(prefix, store, None, each))
            after[prefix] = merged(after, wanted)
    if not any(new.startswith(prefix) for prefix in after) and not below:
        like = next((each for prefix, each in containers.items() if old.startswith(prefix)), None)
        after[new] = VirtualChunkContainer(new, _store(new, store, None, like))
    return Relocation(
        old=old, new=new, before=dict(containers), after=after, renamed=tuple(renamed)
    )


def with_old_places(found: Relocation) -> Containers:
    """Return the containers afterwards if references without a name point to the old place too.

    Older snapshots have these references; the container that moved leaves one without a name.
    """
    return {
        **{each.url_prefix: replace(each, name=None) for each, _ in found.renamed},
        **found.after,
    }


def _store(
    prefix: str,
    given: ObjectStoreConfig | None,
    here: VirtualChunkContainer | None,
    like: VirtualChunkContainer | None,
) -> ObjectStoreConfig:
    """Return how objects are reached: as was said, as they are already, or as at the old place."""
    if prefix.startswith("file:///"):
        return local_filesystem_store(local_path(prefix))
    if given is not None:
        return given
    if here is not None:
        return here.store
    scheme, _, rest = prefix.partition("://")
    if like is not None and like.url_prefix.startswith(f"{scheme}://{rest.partition('/')[0]}/"):
        return like.store  # the same bucket or server
    if scheme not in SCHEMES:
        raise InvalidInputError(
            "no container exists for this kind of place",
            do=f"Use one of {', '.join(SCHEMES)}.",
            url=prefix,
        )
    return ObjectStoreConfig(SCHEMES[scheme][0], {})


def _taken(each: VirtualChunkContainer, here: VirtualChunkContainer) -> InvalidInputError:
    return InvalidInputError(
        "the new prefix already belongs to a container of another name",
        do="Move the files below another prefix, or rename that container.",
        name=each.name,
        url_prefix=here.url_prefix,
        other_name=here.name,
    )
