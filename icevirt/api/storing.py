"""Store the chunks of an array by tasks, and what of a dataset was stored when it is built anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.api.dataset.records import concat_dims, provenance_of
from icevirt.api.dataset.replacing import Carried
from icevirt.api.dataset.target import Target
from icevirt.api.events import Clock, telling_tasks
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.build import ArraySummary, BuildReport, ReferenceCounts
from icevirt.execution.executor import Executor, describe_jobs
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.json import JSONObject, loads
from icevirt.model.snapshot import ArrayNode, Extents, ManifestFile, ManifestRef, Node, node_of
from icevirt.objects.authorize import entry_of
from icevirt.objects.source_access import in_force
from icevirt.planning.reader_support import readers_of_json
from icevirt.planning.records import METADATA
from icevirt.planning.stored_form import (
    StoredForm,
    StoredForms,
    forms_of,
    json_of_form,
    record_forms,
)
from icevirt.planning.twins import is_twin, is_twin_of
from icevirt.repo.authorization import authorize
from icevirt.repo.commits.pending_commit import in_order
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.tasks.copy_chunks import Copied, CopyTask, copy_chunks, encode_chunks, read_weights
from icevirt.versioning.merge.build_merge import BuiltArray, array_of
from icevirt.versioning.repo_updates import as_json
from icevirt.wire.manifests.encoding import ManifestEncoding

_TASKS_PER_SLOT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayStorage:
    """How the chunks of an array come into the repository."""

    copy: CopyTask  # of the whole array; tasks do parts of it
    zarr_json: bytes | None  # of an array in other chunks or codecs; None: as they are
    growing: Collection[str] = ()  # dimensions whose last chunks are written again by appends

    @property
    def made(self) -> ArrayNode:
        """The array, without its manifests where these are new."""
        node = self.copy.node
        if self.zarr_json is None:
            return node
        path, key = self.copy.beside or (node.path, node.id)
        made = node_of(path, self.zarr_json, key)
        assert isinstance(made, ArrayNode), "the metadata is that of an array"
        return made

    def count(self, running: Executor, clock: Clock) -> list[Copied]:
        """Count the chunks that are not stored yet."""
        tasks = [replace(task, is_plan=True) for task in self._copies(running)]
        return self._run(running, copy_chunks, tasks, clock, "count")

    def tasks(self, running: Executor) -> list[CopyTask]:
        """Return what `stored` runs."""
        if self.zarr_json is None:
            return self._copies(running)
        boxes = boxes_of(self.made, _tasks(running), self.growing)
        return [replace(self.copy, box=box, zarr_json=self.zarr_json) for box in boxes]

    def store(self, running: Executor, clock: Clock) -> list[Copied]:
        """Store the chunks, and write manifests that refer to them."""
        function = copy_chunks if self.zarr_json is None else encode_chunks
        return self._run(running, function, self.tasks(running), clock, "store")

    def node(self, stored: Sequence[Copied]) -> ArrayNode:
        """Return the array with what was stored."""
        written = [each for part in stored for each in part.manifests]
        if self.zarr_json is not None:
            refs = [
                ManifestRef(object_id=ObjectId12(each.id), extents=each.extents) for each in written
            ]
        else:
            keys = {each.replaces: ObjectId12(each.id) for each in written}
            refs = [
                ref._replace(object_id=keys.get(bytes(ref.object_id), ref.object_id))
                for ref in self.copy.node.manifests
            ]
        refs.sort(key=lambda ref: tuple(low for low, _ in ref.extents))
        return self.made._replace(manifests=tuple(refs))

    def _copies(self, running: Executor) -> list[CopyTask]:
        keys = sorted({bytes(ref.object_id) for ref in self.copy.node.manifests})
        size = -(-len(keys) // _tasks(running)) or 1
        piles = (keys[at : at + size] for at in range(0, len(keys), size))
        return [replace(self.copy, manifests=tuple(pile)) for pile in piles]

    def _run(
        self,
        running: Executor,
        function: Callable[[CopyTask], Copied],
        tasks: list[CopyTask],
        clock: Clock,
        phase: str,
    ) -> list[Copied]:
        with describe_jobs(f"materialize: {phase}"):
            return running.run(
                function, tasks, progress=telling_tasks(clock.step, phase, len(tasks))
            )


def files_of(stored: Sequence[Copied]) -> dict[ObjectId12, ManifestFile]:
    """Return the manifests that were written, as snapshots list them."""
    return {
        ObjectId12(each.id): ManifestFile(
            id=ObjectId12(each.id), size_bytes=each.size_bytes, num_chunk_refs=each.num_chunk_refs
        )
        for part in stored
        for each in part.manifests
    }


def index_of(stored: Sequence[Copied]) -> NDArray[np.uint32] | None:
    """Return the indices of the chunks that were stored, if they were asked for."""
    found = [part.index for part in stored if part.index is not None]
    return in_order(found) if found else None


def boxes_of(made: ArrayNode, tasks: int, growing: Collection[str]) -> list[Extents]:
    """Cut a grid into boxes of whole chunks, along its first axes.

    What an append writes again lies in boxes of its own, so that their manifests are small.
    """
    boxes: list[Extents] = [()]
    names = made.dimension_names or (None,) * len(made.shape)
    for name, count in zip(names, made.num_chunks, strict=True):
        wanted = -(-tasks // len(boxes))
        last = count - 1 if name in growing and count > 1 else count
        step = max(1, last // wanted)
        spans = [(at, min(at + step, last)) for at in range(0, last, step)]
        spans += [(last, count)] if last < count else []
        boxes = [(*box, span) for box in boxes for span in spans]
    return boxes


def _tasks(running: Executor) -> int:
    slots = running.parallelism
    return slots * _TASKS_PER_SLOT if slots > 1 else 1


def _lacks_latitudes(form: StoredForm, path: str, known: Mapping[str, PlannedArray]) -> str | None:
    """Say that the latitudes are gone that weigh the values of a coarser copy."""
    how = form.coarsen
    if how is None or how.area is None:
        return None
    found = known.get(how.area)
    is_there = found is not None and found.shape == (known[path].shape[how.axis],)
    return None if is_there else f"{how.area} are not its latitudes"


_REGION = "a region of it is stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIn:
    """The dataset of a variable, as it was when its chunks were counted."""

    target: Target
    record: Mapping[str, Any]  # that its last build left
    path: str

    @property
    def forms(self) -> dict[str, StoredForm]:
        """How variables are stored already, as a whole, by path."""
        return forms_of(self.record)

    @property
    def build_id(self) -> str:
        """The build that the ids of its arrays are made of."""
        return str(self.record["build_id"])

    @property
    def growing(self) -> tuple[str, ...]:
        """The dimensions along which the dataset grows."""
        return concat_dims(self.record)

    def metadata(
        self,
        nodes: Iterable[Node],
        stored: Mapping[str, StoredForm | None],
        said: Mapping[str, Sequence[str]],
    ) -> JSONObject:
        """Return what the snapshot says, and write it for the time when the snapshot is gone.

        The snapshot then counts as the last build of the dataset, which stored the variable.

        Args:
            nodes: Of the snapshot.
            stored: How each array is stored as a whole: the variable, or copies of it; None where
                a region is.
            said: Attributes of groups that were written beside, by path; no files have them.
        """
        carried = Carried.of(self.target)
        record = carried.going_on
        forms = forms_of(self.record)
        edited = dict(carried.edited)
        for path, form in stored.items():
            if form is not None:
                forms[path] = form
                if edited.get(path) == _REGION or form.of is not None:
                    edited.pop(path, None)
            elif self.path not in forms:
                edited[self.path] = edited.get(self.path, _REGION)
        record |= {"stored": record_forms(forms), "edited": edited}
        kept = record["kept"]
        record["kept"] = kept | {p: sorted({*kept.get(p, ()), *said[p]}) for p in said}
        new = {node.path: node for node in nodes if node.path in stored}
        carried = replace(carried, made={**carried.made, **new})
        carried.keep(self.target.storage, record, nodes)
        return as_json({METADATA: record})


def dataset_of(
    head: RepoInfoFile, current: RepoState, branch: str, node: ArrayNode
) -> StoredIn | None:
    """Return the dataset whose last build made an array; None where none did.

    Args:
        head: Of the repository.
        current: The repository as it is.
        branch: Whose tip is looked at.
        node: The array.

    Raises:
        FormatError: What is recorded of a build cannot be used.
    """
    for group in reversed(paths.ancestors(node.path)):
        target = Target.at(head, current, branch=branch, group=group)
        last = target.last_build()
        record = None if last is None else provenance_of(last, group)
        if record is not None and target.claim().is_own(node):
            return StoredIn(target=target, record=record, path=node.path)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArrays:
    """The arrays of a build, some of which are stored."""

    arrays: Mapping[str, BuiltArray]  # all of them, by path
    manifests: tuple[ManifestFile, ...]  # that these have
    counts: Mapping[str, ReferenceCounts]  # of those that were stored, by path

    def add_to_report(self, report: BuildReport) -> BuildReport:
        """Return the report of a build, with what was stored."""
        return replace(report, arrays=tuple(map(self._summary, report.arrays)))

    def _summary(self, array: ArraySummary) -> ArraySummary:
        if array.path not in self.counts:
            return array
        made = self.arrays[array.path]
        grid = loads(made.zarr_json)["chunk_grid"]["configuration"]
        return replace(
            array,
            chunk_shape=tuple(grid.get("chunk_shape", array.chunk_shape)),
            references=self.counts[array.path],
            manifests=len(made.manifests),
            readers=readers_of_json(made.zarr_json),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoringAgain:
    """The variables of a plan that are stored in the repository."""

    target: Target
    plan: BuildPlan
    forms: StoredForms  # of arrays of the plan
    findings: tuple[str, ...]  # what is stored again, and what no longer, and why

    @classmethod
    def of(cls, target: Target, plan: BuildPlan) -> StoringAgain:
        """Look which variables the last build of the group left stored."""
        last = target.last_build() if target.mode == "w" else None
        record = None if last is None else provenance_of(last, target.group)
        forms: dict[str, StoredForm] = {}
        findings = []
        known = {array.path: array for array in plan.arrays}
        for path, form in forms_of(record or {}).items():
            is_other = form.of is not None and not is_twin_of(path, form, known)
            if path not in known or is_other:
                if form.of in known:
                    findings.append(f"{path} is no longer kept: {form.of} does not fit its chunks")
                continue
            why = form.misfit(loads(known[path].zarr_json)) or _lacks_latitudes(form, path, known)
            if why is None:
                forms[path] = form
            else:
                findings.append(f"{path} is no longer stored in the repository: {why}")
        if forms:
            findings.append(f"stored in the repository again: {', '.join(sorted(forms))}")
        return cls(target=target, plan=plan, forms=forms, findings=tuple(findings))

    @property
    def referring(self) -> BuildPlan:
        """The plan without twins, which are made of what their variables refer to."""
        own = (array for array in self.plan.arrays if not is_twin(self.forms, array.path))
        return replace(self.plan, arrays=tuple(own))

    @property
    def _twins(self) -> dict[str, PlannedArray]:
        return {each.path: each for each in self.plan.arrays if is_twin(self.forms, each.path)}

    def store(
        self,
        running: Executor,
        clock: Clock,
        arrays: Mapping[str, BuiltArray],
        files: Sequence[ManifestFile],
    ) -> StoredArrays:
        """Store what the variables refer to.

        Args:
            running: Runs the tasks.
            clock: Times the phase.
            arrays: As they were written, by path.
            files: Their manifests.
        """
        found, counts = dict(arrays), dict[str, ReferenceCounts]()
        if not self.forms:
            return StoredArrays(arrays=found, manifests=(*files,), counts=counts)
        written = {file.id: file for file in files}
        with clock.phase("store"):
            for path, form in self.forms.items():
                work = self._work(path, form, arrays)
                stored = work.store(running, clock)
                node = work.node(stored)
                found[path] = BuiltArray(node.user_data, node.id, node.manifests)
                written |= files_of(stored)
                counts[path] = ReferenceCounts(
                    native=sum(part.chunks for part in stored),
                    bytes_stored=sum(part.bytes_stored for part in stored),
                )
        used = {ref.object_id for array in found.values() for ref in array.manifests}
        left = tuple(file for key, file in written.items() if key in used)
        return StoredArrays(arrays=found, manifests=left, counts=counts)

    def _work(self, path: str, form: StoredForm, arrays: Mapping[str, BuiltArray]) -> ArrayStorage:
        array = arrays[form.of or path]
        config, containers = self.target.config, self.plan.containers
        access = in_force().authorization(map(entry_of, containers))
        known = config.virtual_chunk_containers
        how = form.coarsen
        task = CopyTask(
            repo=self.target.storage,
            coarsen=how,
            node=array_of(form.of or path, array.zarr_json, array.node_id, array.manifests),
            beside=None if form.of is None else (path, self._twins[path].node_id),
            containers=tuple(each for each in containers if each.url_prefix not in known),
            access=authorize(access),
            inline_threshold=config.inline_threshold,
            encoding=ManifestEncoding.of_config(config.document),
        )
        if how is not None and how.area is not None:
            latitudes = replace(task, node=array_of(how.area, *arrays[how.area]))
            task = replace(task, weights=read_weights(latitudes.session(), how))
        zarr_json = json_of_form(form, array.zarr_json, path)
        return ArrayStorage(copy=task, zarr_json=zarr_json, growing=self.plan.concat_dim)
