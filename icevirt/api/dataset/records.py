"""Read, check and keep what a dataset says of the build that made it; another writer can change it.

The metadata of a snapshot says what a build made. An amended commit loses it, and expiry takes the
snapshot away. So a build also writes what it made into an object that is named by its id. The ids
of its arrays are made of that id: so the nodes of a snapshot say which record belongs to them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from icevirt.archive.sources import SourceFile
from icevirt.errors import FormatError, InvalidInputError, ObjectNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.json import JSON, loads
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ArrayNode, GroupNode, ManifestRef, Node, Snapshot
from icevirt.planning.axes.dates import is_date
from icevirt.planning.axes.file_labels import Labels
from icevirt.planning.combine.data_vars import data_vars_of
from icevirt.planning.combine.hints import CombineHints
from icevirt.planning.records import BUILD_ID, METADATA, RELOCATED, records_of
from icevirt.planning.stored_form import forms_of
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.kept_objects import cache_of
from icevirt.repo.layout import WORK
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import in_use
from icevirt.storage.protocol import Storage
from icevirt.versioning.lookup import ancestry
from icevirt.versioning.merge.build_merge import BuiltArray

HOLDING = "icevirt_update"
"""Key of the metadata of a snapshot that changes nothing but which files are held back."""

TRIED = "tried"
"""Of what a build records: whether an update tried the files that it held back."""


def records_in(snapshot: Snapshot | SnapshotSummary) -> Iterator[dict[str, Any]]:
    """Yield what a snapshot says of builds, unchecked: one of a build, several of a relocation."""
    return records_of(snapshot.metadata)


def newest_records(info: RepoInfo, tip: ObjectId12) -> Iterator[dict[str, Any]]:
    """Yield what the history of a snapshot says last of each group."""
    groups: set[str] = set()
    for each in ancestry(info, tip):
        for record in records_in(each):
            if (group := str(record.get("group"))) not in groups:
                groups.add(group)
                yield record


def is_about(snapshot: SnapshotSummary, group: str) -> bool:
    """Say whether a snapshot says anything of a group: of a build, or of files held back."""
    said = (snapshot.metadata.get(HOLDING), *records_in(snapshot))
    return any(isinstance(each, dict) and each.get("group") == group for each in said)


def moves_in(snapshots: Iterable[SnapshotSummary]) -> Iterator[tuple[str, str]]:
    """Yield the prefixes, old and new, of relocations."""
    for each in snapshots:
        moved = each.metadata.get(RELOCATED)
        pair = (moved.get("old"), moved.get("new")) if isinstance(moved, dict) else (None, None)
        if isinstance(pair[0], str) and isinstance(pair[1], str) and all(pair):
            yield pair[0], pair[1]


def as_build(snapshot: SnapshotSummary, group: str) -> SnapshotSummary:
    """Return a snapshot as if a build of one group had made it, which a relocation only renamed."""
    record = provenance_of(snapshot, group)
    if record is None or snapshot.metadata.get(METADATA) is record:
        return snapshot
    return replace(snapshot, metadata={**snapshot.metadata, METADATA: record})


def concat_dims(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dimensions along which a build concatenated files, the outermost first."""
    scan = record.get("scan")
    found: Any = scan.get("concat_dim") if isinstance(scan, Mapping) else None
    given = [found] if isinstance(found, str) else found
    is_list = isinstance(given, list | tuple)
    return tuple(name for name in given if isinstance(name, str)) if is_list else ()


def provenance_of(
    snapshot: Snapshot | SnapshotSummary, group: str | None = None
) -> dict[str, Any] | None:
    """Return what a snapshot says of its build, in which the parts that we use can be used.

    Args:
        snapshot: Of a repository that anybody may have written.
        group: Look only at builds of this one; None: of any.

    Returns:
        None where no such build made the snapshot.

    Raises:
        FormatError: A part is of another kind than builds write.
    """
    found = records_in(snapshot)
    recorded = next((each for each in found if group in (None, each.get("group"))), None)
    if recorded is None:
        return None
    for name, fits in _FITS.items():
        if name in recorded and not _is_fit(fits, recorded[name]):
            raise FormatError(
                "the build metadata of a snapshot is not valid",
                do="icevirt did not write it. Go back to a snapshot from before it with"
                " repo.reset_branch(...), or build into another group.",
                snapshot=str(snapshot.id),
                field=f"{METADATA}.{name}",
            )
    return recorded


def absent_in(record: Mapping[str, Any]) -> frozenset[str]:
    """Return the URLs of files that are gone, whose steps read as missing since a build."""
    return frozenset(record.get("combine", {}).get("absent") or ())


def bad_in(record: Mapping[str, Any]) -> frozenset[str]:
    """Return the URLs of files that a build left out."""
    return frozenset(url for url, _, _ in record.get("bad_files", ()))


def _is_fit(fits: Callable[[Any], bool], value: Any) -> bool:
    try:
        return fits(value)
    except (ValueError, TypeError, AttributeError):
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _are_choices(value: Any) -> bool:
    data_vars, edits, tolerance = (value.get(name) or {} for name in _CHOICES)
    data_vars_of(data_vars)
    attrs = edits.get("attrs") or []
    return (
        isinstance(data_vars, dict)
        and _are_texts(value.get("absent") or [])
        and all(map(_are_texts, data_vars.values()))
        and isinstance(attrs, list)
        and all(_are_texts(each) and len(each) == 3 and _is_value(each[2]) for each in attrs)
        and all(map(_is_number, tolerance.values()))
    )


_CHOICES = ("data_vars", "edits", "tolerance")


def _is_value(text: str) -> bool:
    """Say whether a text is the value of an attribute and its dtype."""
    found = loads(text)
    return len(found) == 2 and isinstance(found[1], str | None)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "arrays": _is_count,
    "bytes": lambda found: len(found) == 2 and all(map(_is_count, found)),
    "bad_files": lambda found: all(_are_texts(each) and len(each) == 3 for each in found),
    "combine": lambda found: isinstance(found, dict) and _are_choices(found),
    "born": lambda found: bool(ObjectId12.parse(found)),
    "edited": lambda found: isinstance(found, dict) and _are_texts([*found.values()]),
    "ends": lambda found: isinstance(found, dict) and all(map(_are_texts, found.values())),
    "eras": _is_count,
    "files": _is_count,
    "groups": _are_texts,
    "held": lambda found: isinstance(found, str) and BUILD_ID.fullmatch(found) is not None,
    "kept": lambda found: isinstance(found, dict) and all(map(_are_texts, found.values())),
    "recipe": lambda found: isinstance(found, str),
    "limits": lambda found: len(found) == 2 and all(map(_is_number, found)),
    "references": _is_count,
    "stored": lambda found: isinstance(forms_of({"stored": found}), dict),
}

FOLDER = f"{WORK[0]}/records"
_LARGE = 1 << 28  # bytes of a record; a longer one is none


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBuild(SnapshotSummary):
    """A build whose snapshot is gone: the snapshot that holds what it made, and its record."""

    groups: Mapping[str, str]  # zarr.json as it was committed, by path
    arrays: Mapping[str, tuple[str, str]]  # zarr.json and a digest of manifests, by path

    def pick_nodes(self, nodes: Iterable[Node]) -> dict[str, Node]:
        """Return the nodes that the build made, as it committed them.

        What others changed since is no longer known, and stands for something else.
        """
        found: dict[str, Node] = {}
        build_id = str(self.metadata[METADATA]["build_id"])  # type: ignore[index,call-overload]
        for node in nodes:
            if isinstance(node, GroupNode) and node.path in self.groups:
                found[node.path] = node._replace(user_data=self.groups[node.path].encode())
            elif isinstance(node, ArrayNode) and node.path in self.arrays:
                document, manifests = self.arrays[node.path]
                if node.id != _id_of(build_id, node.path):
                    continue
                is_same = manifests == _digest(node.manifests)
                found[node.path] = node._replace(
                    user_data=document.encode(),
                    manifests=node.manifests if is_same else (),
                )
        return found


def identify_build(build: SnapshotSummary) -> str:
    """Return the identity of a build, which commits to other groups do not change.

    Where its snapshot is gone, that is what its record says: the tip stands for the snapshot.
    """
    if isinstance(build, RecordedBuild):
        said = repr(build.metadata[METADATA])  # others may have written what is no strict JSON
        return digest_of(said, dict(build.groups), dict(build.arrays))
    return str(build.id)


def keep_record(
    storage: Storage,
    record: Mapping[str, Any],
    *,
    groups: Mapping[str, bytes],
    arrays: Mapping[str, BuiltArray],
) -> None:
    """Write what a build made, before the commit that makes it visible."""
    storage.put(*describe_record(record, groups=groups, arrays=arrays))


def describe_record(
    record: Mapping[str, Any],
    *,
    groups: Mapping[str, bytes],
    arrays: Mapping[str, BuiltArray],
) -> tuple[str, bytes]:
    """Return where what a build made is kept, and the bytes that say it."""
    held = {
        "record": record,
        "groups": {path: document.decode() for path, document in groups.items()},
        "arrays": {
            path: [each.zarr_json.decode(), _digest(each.manifests)]
            for path, each in arrays.items()
        },
    }
    text = json.dumps(held, sort_keys=True)
    name = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    return f"{FOLDER}/{record['build_id']}.{name}.json", text.encode()


def find_build(
    storage: Storage, tip: SnapshotSummary, snapshot: Snapshot, group: str
) -> RecordedBuild | None:
    """Return the build of a group that made arrays of a snapshot; None where no record says so.

    Appends record the same build with longer arrays: the record that fits most of them counts.

    Raises:
        FormatError: What a record says cannot be used.
    """
    there = [node for node in snapshot.below(group) if isinstance(node, ArrayNode)]
    paths: dict[str, list[str]] = {}
    for info in storage.list(FOLDER):
        if build_id := build_of(info.path):
            paths.setdefault(build_id, []).append(info.path)
    counts = {
        build_id: sum(node.id == _id_of(build_id, node.path) for node in there)
        for build_id in paths
    }
    for build_id in sorted(filter(counts.get, paths), key=lambda each: (counts[each], each))[::-1]:
        found = [made for path in paths[build_id] if (made := _read(storage, path, tip))]
        own = [made for made in found if provenance_of(made, group) is not None]
        if own:
            return max(own, key=lambda made: likeness(made.arrays, snapshot, group))
    return None


type Said = Mapping[str, tuple[str, str]]
"""zarr.json of arrays and a digest of their manifests, by path."""


def likeness(said: Said, now: Snapshot, group: str) -> tuple[int, int]:
    """Say how much of what is said of arrays is as a snapshot holds it: shapes, manifests."""
    shapes = manifests = 0
    for node in now.below(group):
        if isinstance(node, ArrayNode) and (known := said.get(node.path)) is not None:
            shapes += loads(known[0]).get("shape") == list(node.shape)
            manifests += known[1] == _digest(node.manifests)
    return shapes, manifests


def describe_arrays(build: Snapshot, group: str) -> Said:
    """Return what a record would say of the arrays of a snapshot."""
    return {
        node.path: (node.user_data.decode(), _digest(node.manifests))
        for node in build.below(group)
        if isinstance(node, ArrayNode)
    }


def find_changed_arrays(
    build: Snapshot, now: Snapshot, group: str, build_id: str
) -> tuple[frozenset[ObjectId8], frozenset[ObjectId8]]:
    """Return the arrays with other shapes, and those with other manifests, than a build made.

    A twin that was made later has another shape, too.
    """
    before = {node.id: node for node in build.below(group) if isinstance(node, ArrayNode)}
    arrays = [node for node in now.below(group) if isinstance(node, ArrayNode)]
    there = [node for node in arrays if node.id in before]
    new = (node.id for node in arrays if node.id == _id_of(build_id, node.path))
    return (
        frozenset(node.id for node in there if before[node.id].shape != node.shape)
        | (frozenset(new) - before.keys()),
        frozenset(node.id for node in there if {*before[node.id].manifests} != {*node.manifests}),
    )


def holds_any_of(build: SnapshotSummary, snapshot: Snapshot, group: str) -> bool:
    """Say whether a snapshot still holds an array that a build made, at its place."""
    build_id = str((provenance_of(build) or {}).get("build_id"))
    return any(node.id == _id_of(build_id, node.path) for node in snapshot.below(group))


def build_of(path: str) -> str:
    """Return the id of the build that a record is about; "" where the object is no record."""
    name = path.rpartition("/")[2]
    build_id = name.partition(".")[0]
    return build_id if name.endswith(".json") and BUILD_ID.fullmatch(build_id) else ""


def records_needed(
    storage: Storage, paths: Iterable[str], snapshots: Iterable[Snapshot]
) -> set[str]:
    """Return the records that say what snapshots hold.

    Where none says just that, each record of a build of its arrays is needed.

    Args:
        storage: The root of the repository.
        paths: Of records.
        snapshots: That stay.
    """
    by_build: dict[str, dict[str, frozenset[tuple[str, str]]]] = {}
    needed: set[str] = set()
    for path in paths:
        try:
            arrays = loads(storage.get(path))["arrays"]
            said = frozenset((name, digest) for name, (_, digest) in arrays.items())
        except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            continue
        by_build.setdefault(build_of(path), {})[path] = said
    for snapshot in snapshots:
        arrays = [*snapshot.arrays()]
        for build_id, records in by_build.items():
            own = [node for node in arrays if node.id == _id_of(build_id, node.path)]
            now = frozenset((node.path, _digest(node.manifests)) for node in own)
            exact = {path for path, said in records.items() if said == now}
            needed |= exact or ({*records} if own else set())
    return needed


def _id_of(build_id: str, path: str) -> ObjectId8:
    return ObjectId8.of_content(build_id.encode(), path.encode())


def _digest(manifests: Iterable[ManifestRef]) -> str:
    """Return a digest of the manifests of an array, in whatever order."""
    lines = sorted(f"{each.object_id} {list(map(list, each.extents))}" for each in manifests)
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=10).hexdigest()


def _read(storage: Storage, path: str, tip: SnapshotSummary) -> RecordedBuild | None:
    try:
        raw = storage.get(path)
    except ObjectNotFoundError:
        return None
    try:
        if len(raw) > _LARGE:
            raise ValueError("it is too long")  # noqa: TRY301  # as all that is wrong with it
        held = loads(raw)
        record, groups = held["record"], held["groups"]
        arrays = {path: (document, digest) for path, (document, digest) in held["arrays"].items()}
        texts = [*groups.values(), *(text for pair in arrays.values() for text in pair)]
        is_sound = record["build_id"] == build_of(path) and all(
            isinstance(each, str) for each in texts
        )
        if not is_sound:
            raise ValueError("it holds something else")  # noqa: TRY301
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            "the record of a build is damaged",
            do=write_remedy(
                "Build again from all files: ",
                write_code(
                    'icevirt.build(files, repo, mode="w")', "icevirt build SOURCES... REPO --mode w"
                ),
                ".",
            ),
            path=path,
            cause=str(error),
        ) from error
    known = {each.name: getattr(tip, each.name) for each in fields(SnapshotSummary)}
    known["metadata"] = {METADATA: record}
    return RecordedBuild(**known, groups=groups, arrays=arrays)


DIGEST = re.compile("[0-9a-f]{40}")
"""Name of a recipe; it is part of a path."""
_LARGE_RECIPE = 1 << 26  # bytes; a longer one is none


@dataclass(frozen=True)
class KeptRecipe:
    """The text of a recipe, as a repository keeps it."""

    text: str

    @cached_property
    def digest(self) -> str:
        """The name of the recipe, which covers every letter of it."""
        return hashlib.blake2b(self.text.encode(), digest_size=20).hexdigest()


def keep_recipe(storage: Storage, recipe: KeptRecipe) -> None:
    """Write a recipe, before the commit that names it."""
    storage.put(_path_of(recipe.digest), recipe.text.encode())


def recipe_named(storage: Storage, digest: str) -> KeptRecipe:
    """Return the recipe that a snapshot names; this process asks for each once.

    Raises:
        InvalidInputError: The repository does not have it.
        FormatError: It is another one than its name says.
    """

    def read() -> tuple[KeptRecipe, int]:
        found = _read_recipe(storage, digest)
        return found, len(found.text)

    return cache_of(storage).get(("recipe", digest), read)


def _read_recipe(storage: Storage, digest: str) -> KeptRecipe:
    try:
        raw = storage.get(_path_of(digest)) if DIGEST.fullmatch(digest) else None
    except ObjectNotFoundError:
        raw = None
    if raw is None:
        raise InvalidInputError(
            "the repository does not say how its dataset was made",
            do=write_remedy(
                "An earlier version of icevirt built it, or the recipe was deleted:"
                " pass a recipe of your own with ",
                write_code("recipe=", "--recipe FILE"),
                ".",
            ),
            repo=storage.url,
        )
    try:
        found = KeptRecipe(raw.decode() if len(raw) <= _LARGE_RECIPE else "")
    except UnicodeDecodeError:
        found = KeptRecipe("")
    if found.digest != digest:
        raise FormatError(
            "the recipe of a dataset is not the one that its snapshot names",
            do=write_remedy(
                "Pass a recipe of your own with ", write_code("recipe=", "--recipe FILE"), "."
            ),
            repo=storage.url,
            recipe=digest,
        )
    return found


def recipe_or_none(storage: Storage, record: Mapping[str, Any]) -> KeptRecipe | None:
    """Return the recipe of what a build recorded, for a commit that goes on with it."""
    with suppress(InvalidInputError, FormatError):
        return recipe_named(storage, str(record.get("recipe", "")))
    return None


def _path_of(digest: str) -> str:
    return f"{WORK[0]}/recipes/{digest}.toml"


def digest_of(*parts: Any) -> str:
    """Return a short name that covers JSON values."""
    text = json.dumps(parts, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def as_choice(labels: Mapping[str, Labels]) -> dict[str, JSON] | None:
    """Return labels as a snapshot records them."""
    return {name: _as_recorded(each) for name, each in labels.items()} or None


def _as_recorded(labels: Labels) -> JSON:
    if isinstance(labels, str) or not any(map(is_date, labels)):
        return labels if isinstance(labels, str) else list(labels)  # type: ignore[arg-type]
    return {"dates": [f"{each} {getattr(each, 'calendar', '')}".strip() for each in labels]}


def identity_of(options: ScannerOptions) -> str:
    """Return a digest of what decides how a file is described: options and scanners."""
    identity = options_of(options)
    return digest_of(identity["options"], list(identity["scanners"].items()))


def identity_by(options: ScannerOptions, scanners: Mapping[str, Any]) -> str:
    """Return the identity of a scan with the same options, by other versions of scanners."""
    identity = options_of(options)
    order = [*identity["scanners"]]  # metadata of snapshots has none
    known = {name: scanners[name] for name in (*order, *sorted(scanners)) if name in scanners}
    return digest_of(identity["options"], list(known.items()))


def options_of(options: ScannerOptions) -> dict[str, Any]:
    """Return what decides how a file is described: options, and scanners with their versions.

    How files are combined decides nothing.
    """
    scanners = {each.name: each.version for each in in_use(options)}
    hidden = {"share", "equal", "strict", *(field.name for field in fields(CombineHints))}
    asked = {name: value for name, value in asdict(options).items() if name not in hidden}
    return {"options": asked, "scanners": scanners}


def hints_of(options: ScannerOptions) -> dict[str, Any]:
    """Return how files will be combined, as far as scans take facts for it."""
    held = {field.name: getattr(options, field.name) for field in fields(CombineHints)}
    held.pop("most_together")
    return held


def identify_files(files: Iterable[SourceFile]) -> list[list[str | int]]:
    """Return what identifies the files, for a digest."""
    return [[file.url, file.size, file.etag, file.last_modified] for file in files]
