"""Read and change the configuration, metadata and status of a repository."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from icevirt.errors import InvalidInputError
from icevirt.model.arguments import checked
from icevirt.repo.repo_info_file import RepoInfoFile

if TYPE_CHECKING:
    from icevirt.model.config.document import RepositoryConfig
    from icevirt.model.json import JSONObject
    from icevirt.repo.history.types import RepoStatus
    from icevirt.versioning.repo_updates import FeatureFlag


class Settings:
    """The part of `Repository` that is about the repository as a whole."""

    _head: RepoInfoFile
    _config: RepositoryConfig
    _persisted: dict[str, Any]  # the document when it was last read or saved
    _commit_metadata: dict[str, Any]

    @property
    def config(self) -> RepositoryConfig:
        """The configuration in use: the persisted one, overlaid by the one passed to `open`.

        Changes to it apply to new sessions; `save_config` persists them.
        """
        return self._config

    def save_config(self) -> None:
        """Persist `config`.

        Only changes made here are written, on top of the latest persisted state: containers that
        others added in the meantime stay.
        """
        from icevirt.model.config.document import persistable, rebased
        from icevirt.versioning import repo_updates

        mine = copy.deepcopy(self._config.document)
        base = self._persisted
        edit = repo_updates.set_config(lambda now: persistable(rebased(base, mine, now)))
        info = self._head.update(edit)
        self._persisted = copy.deepcopy(dict(info.config or {}))
        self._config.document = copy.deepcopy(self._persisted)

    def get_metadata(self) -> dict[str, Any]:
        """Return the repository's metadata. Raises ``FormatError`` for the V1 format."""
        return dict(self._head.read_v2("metadata of a repository").info.metadata or {})

    @property
    def metadata(self) -> dict[str, Any]:
        """The repository's metadata."""
        return self.get_metadata()

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace the repository's metadata. Raises ``InvalidInputError``, ``FormatError``."""
        from icevirt.versioning import repo_updates

        new = as_json(metadata)
        self._head.update(repo_updates.set_metadata(lambda _: new))

    def update_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Add to the repository's metadata and return all; raises as `set_metadata`."""
        from icevirt.versioning import repo_updates

        new = as_json(metadata)
        info = self._head.update(repo_updates.set_metadata(lambda old: {**old, **new}))
        return dict(info.metadata or {})

    def get_status(self) -> RepoStatus:
        """Return whether the repository is writable. Raises ``FormatError`` for the V1 format."""
        from icevirt.repo.history.types import RepoStatus

        return RepoStatus.of(self._head.read_v2("the status of a repository").info.status)

    @property
    def status(self) -> RepoStatus:
        """Whether the repository is writable."""
        return self.get_status()

    def set_status(self, status: RepoStatus) -> None:
        """Make the repository read-only, or writable again; raises as `get_status`.

        Raises:
            InvalidInputError: Not a `RepoStatus`.
        """
        from icevirt.model.repo_info import StatusRecord
        from icevirt.repo.history.types import RepoStatus
        from icevirt.versioning import repo_updates
        from icevirt.versioning.history.timestamps import micros

        how = "Pass RepoStatus(RepoAvailability.read_only), or .online."
        status = checked("status", status, RepoStatus, do=how)
        at = self._head.now() if status.set_at is None else micros(status.set_at)
        new = StatusRecord(
            availability=status.availability,
            set_at=at,
            limited_availability_reason=status.limited_availability_reason,
        )
        self._head.update(repo_updates.set_status(new), even_read_only=True)

    def feature_flags(self) -> list[FeatureFlag]:
        """Return the features that can be disabled, and whether they are.

        Raises:
            FormatError: The repository is of the V1 format.
        """
        from icevirt.versioning import repo_updates as flags

        return flags.flags_of(self._head.read_v2("feature flags").info)

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the enabled features."""
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the disabled features."""
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Enable or disable a feature for all writers; None restores its default.

        Raises:
            InvalidInputError: Unknown feature.
            ReadOnlyError: The repository is read-only.
        """
        from icevirt.versioning import repo_updates as flags

        if setting is not None:
            checked("setting", setting, bool, do="Pass True, False, or None for the default.")
        self._head.update(flags.set_flag(name, setting))

    def set_default_commit_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add this metadata to every commit of new sessions. Raises ``InvalidInputError``."""
        self._commit_metadata = dict(as_json(metadata))

    def default_commit_metadata(self) -> dict[str, Any]:
        """Return the metadata set by `set_default_commit_metadata`."""
        return dict(self._commit_metadata)


def as_json(metadata: Mapping[str, Any]) -> JSONObject:
    """Return a copy that is surely JSON.

    Raises:
        InvalidInputError: A value or key is not.
    """
    try:
        text = json.dumps(dict(metadata), allow_nan=False, ensure_ascii=False)
        document: JSONObject = json.loads(text.encode())  # whose strings are UTF-8, too
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"metadata must be JSON: {error}",
            do="Use strings, finite numbers, true, false, null, lists and mappings of these.",
        ) from error
    return document
