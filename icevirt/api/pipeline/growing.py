"""List the files of a dataset that grows: those that it holds, and those that a caller names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from icevirt.api.arguments import outside
from icevirt.api.pipeline.files_held import Compared, FilesHeld, compared, merged
from icevirt.api.sources.inputs import Inputs
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.listings import FileListing
from icevirt.errors import SourcesChangedError
from icevirt.planning.remedies import of_arguments
from icevirt.storage.protocol import Storage

type OnChanged = Literal["refuse", "replace", "keep"]

_SHOWN = 5  # files in a message


@dataclass(slots=True, kw_only=True)
class GrowingSources:
    """The files of a dataset and those that are new, as sources of a build."""

    storage: Storage
    on_changed: OnChanged
    inputs: Inputs | None
    listing: FileListing
    bad: frozenset[str]
    excluded: frozenset[str] = frozenset()  # that must not be added
    _found: Compared | None = None

    def look(self) -> Compared:
        """List the files that the caller named, and compare them with the files of the dataset.

        Raises:
            SourcesChangedError: Some changed, and the caller did not say what is to happen.
        """
        given = () if self.inputs is None else outside(self.storage, self.inputs.files())
        held = {file.url: file for file in self.listing.files}
        found = compared(given, held, self.bad, self.excluded)
        if found.changed and self.on_changed == "refuse":
            raise _changed(found, len(held))
        self._found = found
        return found

    def again(self, found: Compared) -> tuple[SourceFile, ...]:
        """Return the files that the dataset held otherwise, and that are scanned again."""
        if self.on_changed == "replace":
            return found.now
        return tuple(file for file in found.now if file.url not in found.changed)

    def held(self, found: Compared) -> FilesHeld:
        """Return which files the dataset holds."""
        again = frozenset(file.url for file in self.again(found))
        return FilesHeld(listing=self.listing, bad=len(self.bad - again), again=again)

    def files(self) -> SourceFiles:
        """Return all files; a second time, those that the caller named are looked at again."""
        found = self.look() if self._found is None else self._found
        self._found = None
        return merged(self.listing.files, self.again(found), found.new)


def _changed(found: Compared, held: int) -> SourcesChangedError:
    return SourcesChangedError(
        f"{len(found.changed)} of the dataset's {held:,} files changed since it was built",
        fixes=[
            of_arguments({"on_changed": "replace"}, "scans them again, and replaces their values"),
            of_arguments(
                {"on_changed": "keep"},
                "appends the others; readers refuse what refers to these",
            ),
        ],
        do="Nothing was appended. You can also build again from all files:"
        ' icevirt.build(files, repo, mode="w") (icevirt build SOURCES... REPO --mode w).',
        files=dict(list(found.changed.items())[:_SHOWN]),
    )
