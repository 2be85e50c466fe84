"""Find the dataset that a variable belongs to, and record in which form it is stored there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from icevirt.api.dataset.records import METADATA, provenance_of
from icevirt.api.dataset.replacing import Carried
from icevirt.api.dataset.target import Target
from icevirt.model import paths
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import ArrayNode, Node
from icevirt.planning.stored_form import StoredForm, forms_of, recorded_forms
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.repo.settings import as_json

_REGION = "a region of it is stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIn:
    """The dataset of a variable, as it was when its chunks were counted."""

    target: Target
    record: Mapping[str, Any]  # that its last build left
    path: str

    @property
    def form(self) -> StoredForm | None:
        """How the variable is stored already, as a whole; None where it is not."""
        return forms_of(self.record).get(self.path)

    @property
    def growing(self) -> tuple[str, ...]:
        """The dimensions along which the dataset grows."""
        found = self.record.get("scan", {}).get("concat_dim") or ()
        return (found,) if isinstance(found, str) else tuple(map(str, found))

    def metadata(self, nodes: Iterable[Node], form: StoredForm | None) -> JSONObject:
        """Return what the snapshot says, and write it for the time when the snapshot is gone.

        The snapshot then counts as the last build of the dataset, which stored the variable.

        Args:
            nodes: Of the snapshot.
            form: How the variable is stored as a whole; None where a region is.
        """
        carried = Carried.of(self.target)
        record = carried.going_on
        forms = forms_of(self.record)
        edited = dict(carried.edited)
        if form is not None:
            forms[self.path] = form
            if edited.get(self.path) == _REGION:
                del edited[self.path]
        elif self.path not in forms:
            edited[self.path] = edited.get(self.path, _REGION)
        record |= {"stored": recorded_forms(forms), "edited": edited}
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
