"""Look at a dataset, and say what is to become of its files, and how.

Each call that commits a dataset makes a `DatasetChange` and hands it to the transaction: `build`
adds files to nothing, `append` adds and replaces, `update` and windows remove, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, Protocol

from icevirt.api.choices import Choices
from icevirt.api.commit_options import CommitOptions
from icevirt.api.dataset.files_held import CATALOG, files_of_build, identities_in
from icevirt.api.dataset.left_out import find_excluded
from icevirt.api.dataset.records import (
    KeptRecipe,
    absent_in,
    as_choice,
    bad_in,
    digest_of,
    hints_of,
    identity_of,
)
from icevirt.api.dataset.scanning import Scan
from icevirt.api.dataset.target import Target
from icevirt.api.recorded import Continued
from icevirt.api.sources.inputs import NestedSources
from icevirt.api.sources.reader_urls import publish_plan
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.options import declare
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import Progress
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.listings import FileListing
from icevirt.catalog.lookup import KnownTables
from icevirt.errors import ConflictError
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.json import JSON
from icevirt.objects.authorize import Prefix, entry_of
from icevirt.planning.combine.options import CombineSpec
from icevirt.repo.kept_objects import keeping
from icevirt.scan.contract import ScannerOptions
from icevirt.storage.protocol import Below, Storage
from icevirt.version import __version__
from icevirt.versioning.repo_updates import line_of


class Check(Protocol):
    """Looks at a snapshot that is on no branch yet, and raises if it must not get on one."""

    def __call__(
        self, snapshot_id: str, *, planned: Collection[Prefix], scanners: Mapping[str, str]
    ) -> None:
        """Look at it, given prefixes that the call refers to, and its scanner by group."""


NOTHING = FileListing(files=SourceFiles(), pieces=())
"""The list of a group that no build made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a dataset is to become, except the files."""

    storage: Storage
    catalog: Storage | None  # None: in the build's own folder
    mode: str = "w"
    commit: CommitOptions
    choices: Choices
    options: ScannerOptions
    spec: CombineSpec
    nest: NestedSources | None = None
    plan: str = ""  # digest of the plan that is to be built; "" for whatever plan the files make
    progress: Callable[[Progress], None] | None
    recipe: KeptRecipe | None = None  # that is kept with the dataset
    about: Mapping[str, JSON] = field(default_factory=dict)  # what the snapshot says beside it
    absent: frozenset[str] = frozenset()  # URLs of files whose steps stay, without their values
    expected: frozenset[str] = frozenset()  # kinds of changes that stop no build
    also: tuple[str, ...] = ()  # identities of earlier scans whose descriptions of files count
    check: Check | None = None
    known: KnownTables = field(default_factory=dict, repr=False, compare=False)  # of catalogs

    @classmethod
    def of(
        cls,
        choices: Choices,
        commit: CommitOptions,
        *,
        group: str,
        options: ScannerOptions | None = None,
        **more: Any,
    ) -> Request:
        """Return what options ask for; ``more`` are the other fields."""
        options = choices.scanner if options is None else options
        named = options.concat_dims
        spec = choices.spec(named if choices.inferring is None else named or None, group=group)
        return cls(choices=choices, commit=commit, options=options, spec=spec, **more)

    @property
    def kept_catalog(self) -> Storage:
        """The catalog, which only a build may lack."""
        assert self.catalog is not None, "a catalog is named, or the build has one"
        return self.catalog

    @property
    def recorded(self) -> dict[str, JSON]:
        """What decides about the plan beside the options of the scan, as a snapshot records it."""
        lasting = self.spec.dimension_rules.lasting
        combine = self.choices.combine
        spacing = self.spec.spacing or combine.spacing or {}
        chosen = {each.name: getattr(combine, each.name) for each in declare(type(combine))}
        for name in ("rename", "attrs", "preprocess", "max_native_bytes"):
            chosen.pop(name, None)  # the edits hold the first three; the last changes no plan
        resolved: dict[str, JSON] = {
            "publish_as": [list(pair) for pair in self.commit.publication.prefixes],
            "containers": [list(pair) for pair in self.commit.named_containers.names],
            "labels": as_choice(self.spec.labels),
            "nest": None if self.nest is None else digest_of(list(map(list, self.nest.places))),
            "spacing": dict(spacing) if isinstance(spacing, Mapping) else spacing,
            "edits": self.choices.edits.choice,
            "tolerance": dict(self.spec.tolerance),
            "data_vars": {name: list(each) for name, each in lasting.items()},
            "absent": sorted(self.absent) or None,
            "rebase_indices": combine.rebase_indices or None,
        }
        return {name: value for name, value in {**chosen, **resolved}.items() if value is not None}

    def digest(self, group: str, files: str) -> str:
        """Return a digest of all that a build is made of, given that of its files."""
        options = self.options
        parts = identity_of(options), hints_of(options), self.recorded
        return digest_of(__version__, *parts, group, files)

    def scan(
        self, files: Iterable[SourceFile], *, catalog: Storage | None = None, bad: int = 0
    ) -> Scan:
        """Return the scan of files into a catalog, by default that of the request."""
        return Scan(
            files=files if isinstance(files, SourceFiles) else SourceFiles(files),
            options=self.options,
            catalog=self.kept_catalog if catalog is None else catalog,
            max_bad_files=bad,
            progress=self.progress,
            limits=self.choices.scan.limits,
            also=self.also,
            known=self.known,
        )

    def along(self, options: ScannerOptions) -> Request:
        """Return the request with the dimensions that were inferred."""
        spec = self.choices.spec(options.concat_dims, group=self.spec.group)
        return replace(self, options=options, spec=spec)

    def check_of(
        self, containers: Iterable[VirtualChunkContainer] = ()
    ) -> Callable[[str], None] | None:
        """Return what checks a snapshot that refers to these containers; None: nothing does."""
        if self.check is None:
            return None
        return partial(
            self.check,
            planned=tuple(map(entry_of, containers)),
            scanners={self.spec.group: self.options.scanner},
        )

    def publish_plan(
        self, facts: CatalogFacts, plan: BuildPlan
    ) -> tuple[BuildPlan, tuple[SourceFile, ...]]:
        """Return a plan with the URLs that readers will use, and the files that lie there."""
        moved = self.commit.publication.targets(facts, plan)
        return self.commit.named_containers.put_into_containers(
            facts, publish_plan(plan, moved)
        ), moved


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A group of a branch, and what its last build recorded of it."""

    target: Target
    record: Mapping[str, Any]  # empty where no build made the group
    catalog: Storage  # of its scans
    exclusions: Future[frozenset[str]] | None = None  # under way; None: not yet

    @classmethod
    def look(
        cls,
        storage: Storage,
        *,
        branch: str,
        group: str,
        catalog: Storage | None = None,
        pool: Executor | None = None,
    ) -> Dataset:
        """Look at a group, and where there is a pool at which files it excludes.

        Raises:
            InvalidInputError: Its files moved since it was built.
        """
        target = Target.look(storage, branch=branch, group=group, mode="w")
        exclusions = None
        if pool is not None:
            # not before: who takes files out excludes them first, and then moves the branch
            exclusions = pool.submit(find_excluded, storage, branch=branch, group=group)
        record = target.last_record()
        if record is not None:
            target.refuse_left_behind(record)
        catalog = Below(storage, CATALOG) if catalog is None else catalog
        return cls(target=target, record=record or {}, catalog=catalog, exclusions=exclusions)

    @cached_property
    def listing(self) -> FileListing:
        """The files that it is made of.

        Raises:
            InvalidInputError: The repository does not say.
            FormatError: It says something else than the snapshot.
        """
        return files_of_build(self.target.storage, self.record) if self.record else NOTHING

    @cached_property
    def bad(self) -> frozenset[str]:
        """URLs of its files that were left out, as they could not be scanned."""
        return bad_in(self.record)

    @cached_property
    def absent(self) -> frozenset[str]:
        """URLs of its files that are gone, and whose steps read as missing."""
        return absent_in(self.record)

    @cached_property
    def excluded(self) -> frozenset[str]:
        """URLs of files that must not be added."""
        if self.exclusions is not None:
            return self.exclusions.result()
        target = self.target
        return find_excluded(target.storage, branch=target.branch, group=target.group)

    def excluding(self, pool: Executor) -> Dataset:
        """Return it while a pool looks which files it excludes."""
        if self.exclusions is not None:
            return self
        target = self.target
        found = pool.submit(find_excluded, target.storage, branch=target.branch, group=target.group)
        return replace(self, exclusions=found)

    def request(self, how: Continued, **more: Any) -> Request:
        """Return the request of a commit that goes on with it; ``more`` are fields of a request."""
        usual: dict[str, Any] = {
            "storage": self.target.storage,
            "catalog": self.catalog,
            "absent": self.absent,
        }
        return Request.of(how.choices, how.commit, group=self.target.group, **(usual | more))

    def scans_alike(self, how: Continued) -> tuple[str, ...]:
        """Return the scans with the same options by any version of a scanner."""
        return identities_in(keeping(self.catalog), how.choices.scanner)


@dataclass(frozen=True, kw_only=True)
class DatasetChange:
    """What is to become of the files of a dataset, as it was when its files were looked at."""

    dataset: Dataset | None = None  # None: whatever there is, it becomes the files that are added
    added: Sequence[SourceFile] = ()
    replaced: Sequence[SourceFile] = ()  # that it holds otherwise; they keep their places
    removed: Collection[str] = frozenset()  # URLs

    @property
    def listing(self) -> FileListing:
        """The files as they are."""
        return NOTHING if self.dataset is None else self.dataset.listing

    @cached_property
    def kept(self) -> FileListing:
        """The files that stay as they are, and are not looked at again."""
        out = {*self.removed, *(file.url for file in self.replaced)}
        if not out:
            return self.listing
        stay = SourceFiles(file for file in self.listing.files if file.url not in out)
        if len(stay) == len(self.listing.files):
            return self.listing
        return FileListing(files=stay, pieces=())  # a list without pieces is a part of one

    @cached_property
    def _kept_urls(self) -> frozenset[str]:
        return frozenset(self.kept.files.urls)

    @property
    def bad_kept(self) -> int:
        """How many of the files that stay were left out."""
        bad = () if self.dataset is None else self.dataset.bad
        return sum(url in self._kept_urls for url in bad)

    def files(self) -> SourceFiles:
        """Return all files that the dataset will have."""
        if not len(self.listing.files) and not self.removed:
            return self.added if isinstance(self.added, SourceFiles) else SourceFiles(self.added)
        now = {file.url: file for file in self.replaced}
        before = (now.get(file.url, file) for file in self.listing.files)
        return SourceFiles(
            file for file in chain(before, self.added) if file.url not in self.removed
        )

    def refuse_overtaken(self, target: Target, ours: str) -> None:
        """Refuse to go on from files of a dataset that others changed since.

        Args:
            target: The same group, as it is now.
            ours: What is to be committed, for the error.

        Raises:
            ConflictError: They did.
        """
        then = None if self.dataset is None else self.dataset.target
        if then is None or then.tip == target.tip or then.identify() == target.identify():
            return
        last = target.last_build()
        raise ConflictError(
            "another build of this group committed meanwhile",
            do="Do the same again, on what it committed.",
            expected=then.last_id,
            ours=ours,
            theirs="" if last is None else line_of(last),
        )

    def pick_others(self, files: SourceFiles) -> SourceFiles:
        """Return the files, of those given, that are new or changed."""
        if not len(self.kept.files):
            return files
        return SourceFiles(file for file in files if file.url not in self._kept_urls)
