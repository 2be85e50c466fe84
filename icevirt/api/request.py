"""Hold what builds and plans share: sources, options, and access to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icevirt.api.choices import Choices
from icevirt.api.commit_options import CommitOptions
from icevirt.api.sources.inputs import Inputs, Sources
from icevirt.api.sources.nested_lists import NestedSources
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.facts_reader import ClosedCatalog
from icevirt.execution.selection import ExecutorChoice
from icevirt.scan.contract import ScannerOptions
from icevirt.storage.constructors import StorageLike


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFiles:
    """Files that an earlier step listed, and how it scanned them."""

    files: Sequence[SourceFile]
    options: ScannerOptions
    nest: NestedSources | None
    closed: ClosedCatalog | None = field(default=None, repr=False)  # what was read of the scan
    plan: str = ""  # digest of the plan that was made of them; "" where any will do


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Arguments of a build or plan, checked."""

    sources: Sources | None
    choices: Choices
    commit: CommitOptions
    group: str = "/"
    catalog: StorageLike | None = None
    access: Mapping[str, Any] | None = field(default=None, repr=False)
    executor: ExecutorChoice = None
    listed: ListedFiles | None = None

    def inputs(self) -> tuple[Inputs, ScannerOptions, NestedSources | None]:
        """Return the files, what scanners of them are given, and their places in nested lists."""
        if self.listed is not None:
            known = self.listed
            return Inputs((), known=known.files), known.options, known.nest
        nest = self.choices.nest(self.sources)
        inputs, options = self.choices.inputs(self.sources, nest, self.catalog)
        return inputs, options, nest
