"""Open sessions: one version to read, or a branch to change."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from icevirt.model.arguments import checked
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.assets import Assets
from icevirt.repo.history import walks
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.repo.session import Context, Session, SessionMode
from icevirt.repo.view import RepositoryOptions
from icevirt.versioning import feature_flags, repo_updates
from icevirt.versioning.merge.conflicts import ConflictSolver


class Sessions:
    """The part of `Repository` that gives sessions."""

    _head: RepoInfoFile
    _assets: Assets
    _config: RepositoryConfig
    _credentials: Mapping[str, Any]
    _options: RepositoryOptions
    _commit_metadata: dict[str, Any]

    def readonly_session(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
    ) -> Session:
        """Return a session that reads one version.

        Args:
            branch: Read its tip, or with ``as_of`` its newest snapshot up to that time.
            tag: Read the snapshot it names.
            snapshot_id: Read this snapshot.
            as_of: A time; local if it has no time zone.

        Raises:
            InvalidInputError: Not exactly one of branch, tag and snapshot_id is given.
            RefNotFoundError: There is no such branch or tag.
            SnapshotNotFoundError: No such snapshot, or none that old.
        """
        info = self._head.read().info
        key = walks.resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id, as_of=as_of)
        return Session(self._context(), self._assets.snapshot(key))

    def writable_session(self, branch: str) -> Session:
        """Return a session whose changes can be committed to ``branch``.

        Raises:
            RefNotFoundError: There is no such branch.
            ReadOnlyError: The repository is read-only.
        """
        return self._session(branch, SessionMode.writable)

    def rearrange_session(self, branch: str) -> Session:
        """Return a session that can move nodes and nothing else.

        Raises:
            RefNotFoundError: There is no such branch.
            ReadOnlyError: The repository is read-only.
            SessionStateError: The feature ``move_node`` is disabled.
            FormatError: The repository is of the V1 format.
        """
        feature_flags.refuse_disabled(
            self._head.read_v2("moving nodes").info, feature_flags.MOVE_NODE
        )
        return self._session(branch, SessionMode.rearrange)

    @contextmanager
    def transaction(
        self,
        branch: str,
        *,
        message: str,
        metadata: Mapping[str, Any] | None = None,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
    ) -> Iterator[Any]:
        """Yield a zarr store whose changes are committed at the end, or dropped on an error.

        Arguments as for `writable_session` and `Session.commit`.
        """
        checked("message", message, str)
        session = self.writable_session(branch)
        yield session.store
        session.commit(message, metadata, rebase_with=rebase_with, rebase_tries=rebase_tries)

    def _session(self, branch: str, mode: SessionMode) -> Session:
        info = self._head.read().info
        refuse_read_only(info)
        base = self._assets.snapshot(repo_updates.branch_tip(info, branch))
        return Session(self._context(), base, branch, mode)

    def _context(self) -> Context:
        return Context(
            assets=self._assets,
            head=self._head,
            config=copy.deepcopy(self._config),
            credentials=self._credentials,
            options=self._options,
            commit_metadata=dict(self._commit_metadata),
        )
