"""Look at a group of a branch: what its last build made, and whether one may write to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from shlex import quote
from typing import Any, Literal

from icevirt.api.dataset.records import (
    HOLDING,
    TRIED,
    RecordedBuild,
    Said,
    as_build,
    describe_arrays,
    digest_of,
    find_build,
    find_changed_arrays,
    holds_any_of,
    identify_build,
    likeness,
    provenance_of,
)
from icevirt.archive.plan import BuildPlan, WriteResult, load_result
from icevirt.errors import (
    AlreadyExistsError,
    Fix,
    InvalidInputError,
    ObjectNotFoundError,
    RefNotFoundError,
)
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import GroupNode, Node, Snapshot
from icevirt.planning.containers import merge_container
from icevirt.planning.records import BUILD_ID
from icevirt.planning.remedies import build_fix, update_fix
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo import creation, layout
from icevirt.repo.assets import Assets
from icevirt.repo.history.walks import only_rearranged
from icevirt.repo.maintenance import content_names
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState, clock_check_of, refuse_read_only
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Below, Storage
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.id_columns import column
from icevirt.versioning.merge import build_merge
from icevirt.versioning.merge.kept_nodes import Claim
from icevirt.versioning.v1_migration import refuse_v1

type BuildMode = Literal["w-", "w"]

_APPEND = write_remedy(
    write_code("icevirt.append(files, repo)", "icevirt append FILES REPO"),
    " adds only files that you name.",
)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a build goes, as it was when the build began."""

    storage: Storage
    branch: str
    group: str  # canonical path
    mode: BuildMode
    info: RepoInfo | None  # None: there is no repository yet
    head: RepoInfoFile = field(repr=False, compare=False)
    state: RepoState | None = field(default=None, repr=False, compare=False)

    @classmethod
    def look(cls, storage: Storage, *, branch: str, group: str, mode: str) -> Target:
        """Look at the repository.

        Raises:
            AlreadyExistsError: The path holds something that is no repository.
            RefNotFoundError: There is no such branch.
            ReadOnlyError: The repository is read-only.
            InvalidInputError: The mode is unknown.
            FormatError: The repository is of the V1 format.
            StorageError: Its file system would lose commits.
        """
        if mode not in ("w-", "w"):
            raise InvalidInputError(
                "unknown mode",
                do="Use 'w-' to build into an empty group, or 'w' to replace what is in it.",
                mode=mode,
            )
        if isinstance(storage, LocalStorage):
            storage.refuse_unsafe()
        head = RepoInfoFile(storage)
        head.watch = clock_check_of(storage.url)
        found = head.find()
        storage = head.obey(found.info.config if found else None)
        if found is None:
            creation.refuse_foreign(storage)
            if branch != repo_updates.MAIN:
                raise RefNotFoundError(
                    "a new repository has only the branch 'main'",
                    fixes=[build_fix("commits to main", commit_options={"branch": "main"})],
                    do="You can also create repository and branch first.",
                    branch=branch,
                )
        else:
            refuse_v1(found.info, "a build")
            refuse_read_only(found.info)
            lookup.branch_tip(found.info, branch)
        return cls(
            storage=storage,
            branch=branch,
            group=paths.creatable(group),
            mode="w" if mode == "w" else "w-",
            info=None if found is None else found.info,
            head=head,
            state=found,
        )

    @classmethod
    def at(cls, head: RepoInfoFile, state: RepoState, *, branch: str, group: str) -> Target:
        """Return a group of a repository that was read, whose last build is to be looked at."""
        return cls(
            storage=head.storage,
            branch=branch,
            group=group,
            mode="w",
            info=state.info,
            head=head,
            state=state,
        )

    @cached_property
    def assets(self) -> Assets:
        """The repository's objects: each is read once for all that asks about the target."""
        return Assets(self.storage)

    @property
    def config(self) -> RepositoryConfig:
        """The repository's configuration, or that of a new one."""
        return RepositoryConfig.from_document(self.info.config if self.info else None)

    @property
    def tip(self) -> ObjectId12:
        """The snapshot the branch pointed at; where there was no repository, the initial one.

        A process that creates the repository meanwhile builds on that one too.
        """
        if self.info is None:
            return INITIAL_SNAPSHOT_ID
        return lookup.branch_tip(self.info, self.branch)

    def last_build(self) -> SnapshotSummary | None:
        """Return the newest snapshot of the branch that a build made of this group.

        Where nothing of it is there, what is there may be of a build whose snapshot was amended or
        has expired.

        Raises:
            FormatError: What it says of the build cannot be used, or the history is a circle.
        """
        return self._last_build

    @cached_property
    def _last_build(self) -> SnapshotSummary | None:
        if self.info is None:
            return None
        history = lookup.ancestry(self.info, self.tip)
        found = next(
            (
                as_build(each, self.group)
                for each in history
                if provenance_of(each, self.group) is not None
            ),
            None,
        )
        if found is not None and found.id == self.tip:
            return found
        snapshot = self.snapshot()
        said: Said = {}
        if found is not None and holds_any_of(found, snapshot, self.group):
            made = self.assets.snapshot(found.id)
            build_id = str((provenance_of(found) or {}).get("build_id"))
            longer, moved = find_changed_arrays(made, snapshot, self.group, build_id)
            if not longer and moved <= self.find_rearranged(found, moved):
                return found
            said = describe_arrays(made, self.group)
        if next(iter(snapshot.below(self.group)), None) is None:
            return found
        tip = next(iter(lookup.ancestry(self.info, self.tip)))
        other = find_build(self.storage, tip, snapshot, self.group)
        if found is None or other is None:
            return other or found
        # where others changed arrays, what fits best is the record of the build itself
        fits = [likeness(each, snapshot, self.group) for each in (said, other.arrays)]
        return other if fits[1] > fits[0] or _listing(found) != _listing(other) else found

    def last_record(self) -> dict[str, Any] | None:
        """Return what the last build of the group recorded; None where there is none."""
        last = self.last_build()
        return None if last is None else provenance_of(last, self.group)

    @property
    def last_id(self) -> str | None:
        """The snapshot of the last build of the group; None where there is none."""
        last = self.last_build()
        return None if last is None else str(last.id)

    def identify(self) -> str:
        """Return what is another string once anybody changed the dataset.

        That is a build, an append, a relocation, a reset, or which files are held back. Commits to
        other groups change nothing, also where the snapshot of the last build is gone.
        """
        last = self.last_build()
        return digest_of("" if last is None else identify_build(last), self.find_held_back()[0])

    def find_held_back(self) -> tuple[str, bool]:
        """Return the name of the list of files that are held back, and whether they were tried.

        The name is "" where no file is held back. The files were tried if the dataset has not
        changed since an update found that they do not fit.
        """
        history = () if self.info is None else lookup.ancestry(self.info, self.tip)
        for each in history:
            said = each.metadata.get(HOLDING)
            if isinstance(said, dict) and said.get("group") == self.group:
                return _name_or_none(said.get("held")), True
            if (record := provenance_of(each, self.group)) is not None:
                return _name_or_none(record.get("held")), record.get(TRIED) is True
        return "", False

    def find_rearranged(
        self, build: SnapshotSummary, arrays: frozenset[ObjectId8]
    ) -> frozenset[ObjectId8]:
        """Return the arrays whose manifests others rewrote with the references that they held.

        Args:
            build: Since when.
            arrays: That have other manifests than the build gave them.

        Returns:
            None of them where the snapshot of the build is gone: then no log says so.
        """
        if self.info is None or not arrays or isinstance(build, RecordedBuild):
            return frozenset()
        return only_rearranged(self.assets, self.info, self.tip, build.id, arrays)

    def refuse_left_behind(self, record: Mapping[str, Any]) -> None:
        """Check that the files of a dataset lie where the configuration has their containers.

        A container with a name moves for all snapshots at once; the list of files and the recipe
        that a snapshot names do not.

        Raises:
            InvalidInputError: A container moved.
        """
        known = {
            each.name: each.url_prefix
            for each in self.config.virtual_chunk_containers.values()
            if each.name is not None
        }
        for old, name in record.get("combine", {}).get("containers") or ():
            if (new := known.get(name, old)) != old:
                raise InvalidInputError(
                    "the files of the dataset moved, and this version lists them at their old"
                    " place",
                    do=f"Name the new place once more: icevirt relocate {quote(self.storage.url)}"
                    f" {quote(old)} {quote(new)} --branch {quote(self.branch)}",
                    container=name,
                    listed=old,
                    now=new,
                )

    def refuse_occupied(self) -> None:
        """Check that the group is empty, unless it is to be replaced.

        Raises:
            AlreadyExistsError: It holds nodes.
        """
        if self.info is None or self.mode == "w":
            return
        node = next(iter(self.snapshot().below(self.group)), None)
        if node is not None:
            raise AlreadyExistsError(
                "the group of the repository is not empty",
                fixes=self._ways(),
                do=_APPEND if self.last_build() else "",
                repo=self.storage.url,
                group=self.group,
                found=node.path,
            )

    def _ways(self) -> list[Fix]:
        """Return how to build though the group holds something: in its place, or beside it."""
        there = {node.path for node in self.snapshot().below(paths.ROOT)}
        stem = "/build" if self.group == paths.ROOT else self.group
        free = next(name for at in count(2) if (name := f"{stem}_{at}") not in there)
        beside = build_fix("keeps what is there, and makes another group", group=free)
        if self.last_build() is None:
            return [beside]
        place = {"group": self.group} if self.group != paths.ROOT else {}
        place |= {"branch": self.branch} if self.branch != repo_updates.MAIN else {}
        return [
            update_fix(self.storage.url, "adds what is new, and corrects what changed", **place),
            build_fix("replaces what the last build of this group made", mode="w"),
            beside,
        ]

    def record(self, build_id: str) -> Below:
        """Return where a build keeps what it needs to be resumed."""
        return Below(self.storage, f"{layout.BUILDS}/{build_id}/")

    def still_holds(self, build: SnapshotSummary) -> bool:
        """Say whether all that a build of the past made of the group is at the branch's tip.

        What others put beside it, a build into a group below for example, does not matter.
        """
        made = nodes_of(self.assets, build, self.group)
        now = self.snapshot()
        return all(now.find(path) == node for path, node in made.items())

    def snapshot(self) -> Snapshot:
        """Return what the branch holds; nothing where there is no repository."""
        if self.info is None:
            return Snapshot(id=INITIAL_SNAPSHOT_ID, nodes=(), flushed_at=0, message="")
        return self.assets.snapshot(self.tip)

    def claim(self) -> Claim:
        """Return what of the repository is the build's: its group, and what the last one made."""
        last = self.last_build() if self.mode == "w" else None
        if last is None:
            return Claim(group=self.group, replaces=self.mode == "w")
        recorded = provenance_of(last) or {}
        return Claim(
            group=self.group,
            replaces=True,
            made=nodes_of(self.assets, last, self.group),
            kept={path: frozenset(names) for path, names in recorded.get("kept", {}).items()},
            edited=recorded.get("edited", {}),
        )

    def build_id(self, inputs: str) -> str:
        """Return the id of a build, under which it is resumed and found again.

        A build that follows another one has another id, and so have its arrays: those of a build
        that is forgotten may still be there.
        """
        last = self.last_build()
        if last is not None:
            return digest_of(inputs, self.branch, str(last.id))
        is_free = next(iter(self.snapshot().below(self.group)), None) is None
        return digest_of(inputs, self.branch, "" if is_free else str(self.tip))

    def rehearse(self, plan: BuildPlan, claim: Claim) -> None:
        """Place the plan into the tip's nodes, to find out before writing what would refuse it.

        Raises:
            AlreadyExistsError: Something of the build already exists.
            InvalidInputError: Something would lie below an array, or containers contradict those
                that are there.
        """
        known = self.config.virtual_chunk_containers
        for container in plan.containers:
            merge_container(known, container)
        if self.info is None:
            return
        build_merge.graft_build(
            self.snapshot(),
            groups=plan.groups,
            arrays={array.path: (array.zarr_json, array.node_id, ()) for array in plan.arrays},
            claim=claim,
            new_id=ObjectId8.random,
        )

    def abandon(self, build_id: str) -> None:
        """Remove what a refused build left; where there was nothing before, nothing stays.

        Only objects that this build recorded are removed, and only while there is no repository
        that could refer to them and no other build that could.
        """
        record = self.record(build_id)
        mine = all(f"/{build_id}/" in info.path for info in self.storage.list(layout.BUILDS))
        if self.info is None and mine and RepoInfoFile(self.storage).find() is None:
            for result in read_results(record):
                if result.manifest_id is not None:
                    self.storage.delete(layout.manifest(ObjectId12(result.manifest_id)))
                content_names.forget(self.storage, column(result.chunk_ids))
                for key in result.chunk_ids:
                    self.storage.delete(layout.chunk(ObjectId12(key)))
        record.delete_all()


def _name_or_none(name: object) -> str:
    return name if isinstance(name, str) and BUILD_ID.fullmatch(name) else ""


def _listing(build: SnapshotSummary | None) -> object:
    """Return the name of the list of files that a build was made of."""
    return None if build is None else (provenance_of(build) or {}).get("listing")


def nodes_of(assets: Assets, build: SnapshotSummary, group: str) -> dict[str, Node]:
    """Return the nodes that a build made of its group, as it committed them.

    The ids of its arrays cover the id of the build. Groups have random ids: those that its
    transaction log calls new. Where appends made them longer since, that log is an earlier one;
    where it expired, the record names the groups.
    """
    recorded = provenance_of(build) or {}
    build_id = str(recorded.get("build_id")).encode()
    snapshot = assets.snapshot(build.id)
    if isinstance(build, RecordedBuild):
        own = snapshot.find(group)
        return build.pick_nodes([*snapshot.below(group), *([] if own is None else [own])])
    born, named = recorded.get("born"), recorded.get("groups", ())
    groups = frozenset[ObjectId8]()
    if not named:
        with suppress(ObjectNotFoundError):
            log = assets.transaction_log(ObjectId12.parse(born) if born else build.id)
            groups = log.new_groups
    made: dict[str, Node] = {
        node.path: node
        for node in snapshot.below(group)
        if node.id in groups
        or (node.path in named and isinstance(node, GroupNode))
        or node.id == ObjectId8.of_content(build_id, node.path.encode())
    }
    own = snapshot.find(group)
    return made if own is None else {**made, own.path: own}


def origin_of(build: SnapshotSummary, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells the groups of a build from those of others, for a record that follows."""
    if isinstance(build, RecordedBuild):
        return {"groups": sorted(build.groups)}
    if record.get("groups"):
        return {"groups": record["groups"]}
    return {"born": record.get("born") or str(build.id)}


def read_results(record: Storage) -> Iterator[WriteResult]:
    """Yield the results of all items that are recorded as finished."""
    for info in record.list("items"):
        yield load_result(record.get(info.path))
