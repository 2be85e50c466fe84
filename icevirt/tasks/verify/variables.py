"""Find the variable of a source file, and the chunk of it, that a reference points to.

A repository records neither the group of the file that became its root, nor along which dimension
a contiguous variable was cut, nor what the file calls a dimension: all of them are found again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.model import paths
from icevirt.repo.session import Session
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.registry import scan
from icevirt.tasks.verify.matching import (
    ChunkToCompare,
    group_of,
    part_of_chunk,
    row_of,
)


class SourceVariables:
    """The variables of one file, as those who built the dataset may have scanned them."""

    def __init__(self, session: Session, source: ByteSource) -> None:
        self.group = paths.ROOT  # of the file, which became the root
        self._session = session
        self._source = source
        self._renamed: dict[str, str] = {}  # dimensions of the file, as the dataset calls them
        self._scans: dict[str | None, ScannedFile] = {}

    @property
    def arrays(self) -> Sequence[ScannedArray]:
        """All of them, uncut."""
        return self._scan(None).arrays

    def find(
        self, wanted: ChunkToCompare, names: Iterable[str | None]
    ) -> tuple[ScannedArray, tuple[int, ...]] | None:
        """Find the variable and the chunk of the file that lie where the reference points.

        All dimensions of the array are tried: files may have been concatenated along any.
        """
        others: list[str] = []
        for scanned in self._cuts(names):
            for array in scanned.arrays:
                row = row_of(wanted, array)
                if row is not None and wanted.array.endswith(array.path):
                    return array, tuple(array.references.index[row].tolist())
                if row is not None and self.group == paths.ROOT:
                    others.append(array.path)
        for array in self.arrays:
            found = part_of_chunk(wanted, array)
            if found is not None and wanted.array.endswith(array.path):
                return found
            if found is not None and self.group == paths.ROOT:
                others.append(array.path)
        group = group_of(wanted.array, others)
        if group != paths.ROOT:
            self.group, self._scans = group, {}
            return self.find(wanted, names)
        return None

    def in_file(self, variable: str) -> str:
        """Return the path of a variable in the file."""
        return self.group.rstrip("/") + variable

    def called(self, variable: str) -> str:
        """Return what the dataset calls the coordinate of a dimension that it gave another name."""
        own = paths.name(variable)
        return variable.removesuffix(own) + self._renamed.get(own, own)

    def call(self, theirs: Sequence[str | None], mine: Sequence[str | None]) -> None:
        """Note dimensions that the dataset gave other names, and look for their coordinates."""
        for name, now in zip(theirs, mine, strict=False):
            if name and now and name != now and self._renamed.get(name) != now:
                self._renamed[name] = now
                self._scans.clear()

    def _cuts(self, names: Iterable[str | None]) -> Iterator[ScannedFile]:
        """Yield scans for one dimension after another, those that the file calls otherwise last."""
        tried: list[str | None] = [None, *names]
        yield from map(self._scan, dict.fromkeys(tried))
        own = dict.fromkeys(name for array in self.arrays for name in array.dimension_names)
        yield from (self._scan(name) for name in own if name not in tried)

    def _scan(self, concat_dim: str | None) -> ScannedFile:
        if concat_dim not in self._scans:
            # what a build left out may be what no scan can describe
            names = {paths.name(node.path) for node in self._session.snapshot.arrays()}
            names |= self._renamed.keys()
            options = ScannerOptions(
                concat_dim=concat_dim, group=self.group, variables=tuple(sorted(names))
            )
            self._scans[concat_dim] = scan(self._source, options)
        return self._scans[concat_dim]
