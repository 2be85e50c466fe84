"""Choose the virtual chunk containers of a build, and what moving an archive changes in them.

A few prefixes cover all files of a build. Locations below a named container can be relative to it
(``vcc://name/path``), so that an archive can move: these references follow the configuration. All
others, and those whose file has another checksum at its new place, are written anew. Spec: "Virtual
chunk containers".
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from icevirt.connect.container import endpoint_of
from icevirt.connect.urls import local_path
from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.containers import (
    SCHEMES,
    ObjectStoreConfig,
    VirtualChunkContainer,
    local_filesystem_store,
)
from icevirt.model.strings import Strings, gather

_DISK = "file:///"
_ROWS = 1 << 16  # URLs that are looked at together
_KINDS = {scheme: kinds[0] for scheme, kinds in SCHEMES.items() if scheme != "file"}

type Stores = Sequence[tuple[str, ObjectStoreConfig]]
"""How objects are reached, by prefix of their URLs; the first that fits counts."""


def containers_for(
    urls: Strings, *, named: Mapping[str, str] | None = None, stores: Stores = ()
) -> tuple[VirtualChunkContainer, ...]:
    """Return the containers of files: the common directory of those on one disk or server.

    The whole disk is never made a container: a reader would have to authorize ``file:///``. Instead
    there is one for each top directory. The official client finds no container whose prefix is
    percent-encoded, so the nearest directory above it whose name needs no encoding is taken where
    there is one.

    Args:
        urls: Of files, or of directories of files.
        named: Names of containers by their prefixes, which end in "/". Files below them get no
            other container.
        stores: What containers say of how their objects are reached.

    Raises:
        InvalidInputError: A file lies in the root directory of the disk, or on a server of an
            unknown kind; no file lies below a prefix, or those that do are reached in several ways.
    """
    roots: dict[str, set[str]] = defaultdict(set)
    reached: dict[str, set[str]] = {prefix: set() for prefix in named or {}}
    longest = sorted(reached, key=len, reverse=True)
    for directory in directories_of(urls):
        store = _find_prefix(directory, [prefix for prefix, _ in stores])
        if own := _find_prefix(directory, longest):
            reached[own].add(store)
        else:
            roots[store or "/".join(directory.split("/")[:3]) + "/"].add(directory)
    configs = dict(reversed(stores))
    found = [
        _name_container(prefix, (named or {})[prefix], reached[prefix], configs)
        for prefix in reached
    ]
    for root, members in sorted(roots.items()):
        common = _find_common(members)
        if common != _DISK:
            found.append(_container(_plain(common, root), configs.get(root)))
            continue
        tops: dict[str, set[str]] = defaultdict(set)
        for directory in members:
            tops["/".join(directory.split("/")[:4])].add(directory)
        found += [_container(_plain(_find_common(each), root)) for _, each in sorted(tops.items())]
    return tuple(found)


def merge_container(
    known: Mapping[str, VirtualChunkContainer], wanted: VirtualChunkContainer
) -> VirtualChunkContainer:
    """Return the container that stands for one that a repository has and one that a build wants.

    References that are there already must go on leading where they led: names stay, and so does
    the way to the objects where the build says nothing of it.

    Raises:
        InvalidInputError: The name is that of another prefix, the prefix has another name, or its
            objects are said to lie at another server.
    """
    others = [each for each in known.values() if each.url_prefix != wanted.url_prefix]
    if wanted.name is not None and (
        other := next((each for each in others if each.name == wanted.name), None)
    ):
        raise _refusal("this container name already belongs to another prefix", other, wanted)
    here = known.get(wanted.url_prefix)
    if here is None:
        return wanted
    if here.name is not None and wanted.name not in (None, here.name):
        raise _refusal("the container of this prefix already has another name", here, wanted)
    ours = wanted.store.options
    says_nothing = not isinstance(ours, Mapping) or not any(ours.values())
    store = here.store if says_nothing else wanted.store
    if not says_nothing and endpoint_of(here) not in (None, endpoint_of(wanted)):
        raise _refusal("the container of this prefix already names another server", here, wanted)
    return replace(wanted, store=store, name=wanted.name or here.name)


def with_names(table: ChunkTable, named: Sequence[tuple[str, str]]) -> ChunkTable:
    """Return references with the locations below the prefixes of containers as relative ones.

    Args:
        table: References with absolute locations.
        named: (url_prefix, name) of containers; the longest prefix that fits counts.
    """
    if not named or not len(table.locations):
        return table
    urls = relative(table.locations.url, named)
    return replace(table, locations=replace(table.locations, url=urls))


def relative(urls: Strings, named: Sequence[tuple[str, str]]) -> Strings:
    """Return URLs, those below a prefix as ``vcc://name/`` and what follows the prefix."""
    return rebase(urls, [(prefix, f"vcc://{name}/") for prefix, name in named])


def absolute(urls: Strings, named: Sequence[tuple[str, str]]) -> Strings:
    """Undo `relative`; a location of no container stays as it is."""
    return rebase(urls, [(f"vcc://{name}/", prefix) for prefix, name in named])


def rebase(urls: Strings, heads: Sequence[tuple[str, str]]) -> Strings:
    """Return URLs, those that begin as the first of a pair with the second in its place."""
    beginnings = [before.encode() for before, _ in heads]
    hits: list[tuple[int, NDArray[np.int64]]] = []
    rest = np.arange(len(urls))
    for which in sorted(range(len(heads)), key=lambda each: -len(heads[each][0])):
        hit = urls.begin_with(beginnings[which], rest)
        if hit.any():
            hits.append((which, rest[hit]))
            rest = rest[~hit]
    if not hits:
        return urls
    ends = [after.encode() for _, after in heads]
    data = np.concatenate([urls.data, np.frombuffer(b"".join(ends), np.uint8)])
    at = len(urls.data) + np.cumsum([0, *map(len, ends)])
    # each URL is put together of two pieces, the first of which is empty unless it is moved
    start = np.stack([urls.starts[:-1]] * 2, axis=1)
    length = np.stack([np.zeros(len(urls), np.int64), urls.lengths], axis=1)
    for which, rows in hits:
        start[rows, 0], length[rows, 0] = at[which], len(ends[which])
        start[rows, 1] += len(beginnings[which])
        length[rows, 1] -= len(beginnings[which])
    joined, starts = gather(data, start.reshape(-1), length.reshape(-1))
    return Strings(joined, starts[::2].copy())


def _refusal(
    what: str, here: VirtualChunkContainer, wanted: VirtualChunkContainer
) -> InvalidInputError:
    return InvalidInputError(
        what,
        do="References in the repository depend on it: change the repository's configuration "
        "first, or build with its name and server.",
        name=here.name,
        url_prefix=here.url_prefix,
        server=endpoint_of(here),
        asked_name=wanted.name,
        asked_url_prefix=wanted.url_prefix,
        asked_server=endpoint_of(wanted),
    )


def _find_prefix(directory: str, prefixes: Iterable[str]) -> str:
    return next(filter(directory.startswith, prefixes), "")


def _name_container(
    prefix: str, name: str, reached: set[str], configs: Mapping[str, ObjectStoreConfig]
) -> VirtualChunkContainer:
    if not reached:
        raise InvalidInputError(
            "no file lies below the prefix of this container",
            do="Name a directory or URL prefix of the files, because references will point there.",
            name=name,
            url_prefix=prefix,
        )
    if len({str(configs.get(each)) for each in reached}) > 1:
        raise InvalidInputError(
            "files below one container have different access settings",
            do="Name a container for each prefix in access.",
            name=name,
            url_prefix=prefix,
            access=sorted(reached),
        )
    (store, *_) = reached
    return replace(_container(prefix, configs.get(store)), name=name)


def directories_of(urls: Strings) -> set[str]:
    """Return the directories of files, as text once for a run of files of one directory."""
    found = set()
    for low in range(0, len(urls), _ROWS):
        some = urls[np.arange(low, min(low + _ROWS, len(urls)))]
        slashes = np.flatnonzero(some.data == ord("/"))
        ends = slashes[np.searchsorted(slashes, some.starts[1:]) - 1] + 1
        lengths = ends - some.starts[:-1]
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            shown = sliding_window_view(some.data, length)[some.starts[rows]]
            new = np.ones(len(rows), np.bool_)
            new[1:] = (shown[1:] != shown[:-1]).any(axis=1)
            for row in np.flatnonzero(new).tolist():
                directory = shown[row].tobytes().decode()
                if directory == _DISK:
                    raise InvalidInputError(
                        "a source lies in the root directory, so readers would have to authorize "
                        "the whole disk",
                        do="Move it into a directory.",
                        url=some[int(rows[row])],
                    )
                found.add(directory)
    return found


def _container(prefix: str, store: ObjectStoreConfig | None = None) -> VirtualChunkContainer:
    if prefix.startswith(_DISK):
        return VirtualChunkContainer(prefix, local_filesystem_store(local_path(prefix)))
    kind = _KINDS.get(prefix.partition(":")[0])
    if kind is None:
        raise InvalidInputError(
            "no container exists for this kind of source",
            do=f"Use one of {', '.join(_KINDS)}, or local files.",
            url=prefix,
        )
    return VirtualChunkContainer(prefix, store or ObjectStoreConfig(kind, {}))


def _plain(directory: str, root: str) -> str:
    before, encoded, _ = directory.partition("%")
    above = before.rsplit("/", 1)[0] + "/"
    return above if encoded and above.startswith(root) and above != _DISK else directory


def _find_common(directories: Iterable[str]) -> str:
    split = [directory.split("/")[:-1] for directory in directories]
    columns = itertools.takewhile(lambda column: len({*column}) == 1, zip(*split, strict=False))
    return "/".join([*(column[0] for column in columns), ""])


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
        return absolute(urls, with_name(self.before.values()))

    def follows(self, urls: Strings) -> NDArray[np.bool_]:
        """Say which locations, as references hold them, are relative to a container that moves."""
        found = np.zeros(len(urls), np.bool_)
        for each, _ in self.renamed:
            found |= urls.begin_with(f"vcc://{each.name}/".encode())
        return found

    def move(self, urls: Strings) -> Strings:
        """Return absolute URLs, those below the old prefix below the new one."""
        return rebase(urls, [(self.old, self.new)])

    def write(self, urls: Strings) -> Strings:
        """Return absolute URLs as references hold them: relative to a container that has a name."""
        return relative(urls, with_name(self.after.values()))


def with_name(containers: Iterable[VirtualChunkContainer]) -> list[tuple[str, str]]:
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
                raise InvalidInputError(
                    "the new prefix already belongs to a container of another name",
                    do="Move the files below another prefix, or rename that container.",
                    name=each.name,
                    url_prefix=here.url_prefix,
                    other_name=here.name,
                )
            wanted = VirtualChunkContainer(prefix, _store(prefix, store, here, each), each.name)
            del after[each.url_prefix]
            after[prefix] = wanted
            renamed.append((each, wanted))
        elif not any(prefix.startswith(other) for other in after):
            wanted = VirtualChunkContainer(prefix, _store(prefix, store, None, each))
            after[prefix] = merge_container(after, wanted)
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
