"""Store variables anew when their dataset is made anew, before the commit that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from icevirt.api.dataset.events import Clock
from icevirt.api.dataset.records import provenance_of
from icevirt.api.dataset.target import Target
from icevirt.api.storing.store import ArrayStorage, files_of
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import ArraySummary, BuildReport, ReferenceCounts
from icevirt.execution.executor import Executor
from icevirt.model.json import loads
from icevirt.model.snapshot import ManifestFile
from icevirt.objects.authorize import entry_of
from icevirt.objects.source_access import in_force
from icevirt.planning.reader_support import readers_of_json
from icevirt.planning.stored_form import StoredForm, StoredForms, forms_of, stored_json
from icevirt.repo.authorization import authorized
from icevirt.tasks.copy_chunks import CopyTask
from icevirt.versioning.merge.build_merge import BuiltArray, array_of
from icevirt.wire.manifests.encoding import ManifestEncoding


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArrays:
    """The arrays of a build, some of which are stored."""

    arrays: Mapping[str, BuiltArray]  # all of them, by path
    manifests: tuple[ManifestFile, ...]  # that these have
    counts: Mapping[str, ReferenceCounts]  # of those that were stored, by path

    def reported(self, report: BuildReport) -> BuildReport:
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
            if path not in known:
                continue
            why = form.misfit(loads(known[path].zarr_json))
            if why is None:
                forms[path] = form
            else:
                findings.append(f"{path} is no longer stored in the repository: {why}")
        if forms:
            findings.append(f"stored in the repository again: {', '.join(sorted(forms))}")
        return cls(target=target, plan=plan, forms=forms, findings=tuple(findings))

    def stored(
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
                work = self._work(path, form, arrays[path])
                stored = work.stored(running, clock)
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

    def _work(self, path: str, form: StoredForm, array: BuiltArray) -> ArrayStorage:
        config, containers = self.target.config, self.plan.containers
        access = in_force().authorization(map(entry_of, containers))
        known = config.virtual_chunk_containers
        task = CopyTask(
            repo=self.target.storage,
            node=array_of(path, array.zarr_json, array.node_id, array.manifests),
            containers=tuple(each for each in containers if each.url_prefix not in known),
            access=authorized(access),
            inline_threshold=config.inline_threshold,
            encoding=ManifestEncoding.of_config(config.document),
        )
        zarr_json = stored_json(form, array.zarr_json)
        return ArrayStorage(copy=task, zarr_json=zarr_json, growing=self.plan.concat_dim)
