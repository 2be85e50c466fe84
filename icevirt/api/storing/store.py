"""Store the chunks of one array by tasks, and say what the array is then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.api.dataset.events import Clock, telling_tasks
from icevirt.execution.executor import Executor, described
from icevirt.ids import ObjectId12
from icevirt.model.snapshot import ArrayNode, Extents, ManifestFile, ManifestRef, node_of
from icevirt.repo.commits.pending_commit import in_order
from icevirt.tasks.copy_chunks import Copied, CopyTask, copy_chunks, encode_chunks

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
        made = node_of(node.path, self.zarr_json, node.id)
        assert isinstance(made, ArrayNode), "the metadata is that of an array"
        return made

    def counted(self, running: Executor, clock: Clock) -> list[Copied]:
        """Count the chunks that are not stored yet."""
        tasks = [replace(task, is_plan=True) for task in self._copies(running)]
        return self._run(running, copy_chunks, tasks, clock, "count")

    def tasks(self, running: Executor) -> list[CopyTask]:
        """Return what `stored` runs."""
        if self.zarr_json is None:
            return self._copies(running)
        boxes = boxes_of(self.made, _tasks(running), self.growing)
        return [replace(self.copy, box=box, zarr_json=self.zarr_json) for box in boxes]

    def stored(self, running: Executor, clock: Clock) -> list[Copied]:
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
                replace(ref, object_id=keys.get(bytes(ref.object_id), ref.object_id))
                for ref in self.copy.node.manifests
            ]
        refs.sort(key=lambda ref: tuple(low for low, _ in ref.extents))
        return replace(self.made, manifests=tuple(refs))

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
        with described(f"materialize: {phase}"):
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
