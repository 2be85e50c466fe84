"""Open sessions: one version of a repository, isolated from the changes of others."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from icevirt.errors import (
    CommitRefusedError,
    ConflictError,
    FinishedSessionError,
    MergeRefusedError,
    NothingToCommitError,
    NotPickledError,
    NotRearrangingError,
    check,
)
from icevirt.escaping import Pictured, escape_line
from icevirt.model import paths
from icevirt.model.snapshot import Snapshot
from icevirt.repo.assets import Assets
from icevirt.repo.editing import Editing
from icevirt.repo.history import walks
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.repo.view import Context, RepositoryOptions, SessionMode
from icevirt.versioning import lookup

if TYPE_CHECKING:  # a reader commits nothing
    from icevirt.model.config.document import RepositoryConfig
    from icevirt.model.repo_info import RepoInfo
    from icevirt.repo.commits.change_set import ChangeSet
    from icevirt.repo.commits.commit import SessionCommit
    from icevirt.versioning.merge.conflicts import ConflictSolver

__all__ = ["Context", "ForkSession", "Session", "SessionMode"]


class Session(Editing, Pictured):
    """One version of a repository, from `Repository.readonly_session` or `writable_session`.

    Examples:
        >>> import zarr
        >>> session = icevirt.Repository.open("repo").writable_session("main")
        >>> zarr.open_group(session.store)["lat"].attrs["units"] = "degrees_north"
        >>> session.has_uncommitted_changes
        True
        >>> snapshot_id = session.commit("units of latitude")
    """

    def __repr__(self) -> str:
        if self.read_only:
            return f"<icevirt.Session {self.snapshot_id} read-only>"
        changed = "with" if self.has_uncommitted_changes else "no"
        at = escape_line(f"{self._branch}@{self.snapshot_id}")
        return f"<icevirt.Session {at} {changed} uncommitted changes>"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.read_only:
            raise NotPickledError(
                "a writable session does not pickle",
                do="Pickle `session.fork()` and merge it later, or commit the session first.",
            )
        return type(self), (self._context, self._base)

    # -- working side by side ----------------------------------------------------------------

    def fork(self) -> ForkSession:
        """Return a session that pickles, for a worker to write with, and to `merge` afterwards.

        It starts with the changes made so far. Workers write different chunks: `merge` refuses
        what two of them wrote without knowing of each other.

        Raises:
            ReadOnlyError: The session is read-only.
            SessionStateError: It is a rearrange session.
        """
        with self.lock:
            return ForkSession(self._context, self._change().fork())

    def merge(self, *others: Session) -> None:
        """Merge the changes of forks of this session, all or nothing.

        Raises:
            ConflictError: Two of them changed the same node, or wrote the same chunk, and neither
                knew of the other.
            SessionStateError: One is not a fork, started from another snapshot or repository, or
                is a fork of a fork whose changes this session does not have.
            ReadOnlyError: The session is read-only.
        """
        from icevirt.repo.commits.change_set import ChangeSet

        # all repositories begin at the same snapshot, and chunks of another lie elsewhere
        own = self.snapshot_id, self.assets.storage.url
        self._area()  # one that is read-only says so first
        taken = []
        for other in others:
            if not isinstance(other, ForkSession) or own != (
                other.snapshot_id,
                other.assets.storage.url,
            ):
                raise MergeRefusedError(
                    "only forks of this session can be merged into it",
                    do="Merge forks before a rebase, into the session that they came from.",
                    session=self.snapshot_id,
                    other=repr(other),
                )
            taken.append(other.copy_changes())
        taken.sort(key=lambda change: change.begins_after)  # what others began with comes first
        with self.lock:
            merged = reduce(ChangeSet.merge, taken, self._change())
            if merged.missing() and not isinstance(self, ForkSession):
                raise MergeRefusedError(
                    "a fork of a fork has changes of the fork that it came from, which this session"
                    " does not have, so that they would be lost",
                    do="Merge the fork that it came from first, or both at once:"
                    " session.merge(first, second).",
                    session=self.snapshot_id,
                )
            self._settle(self._base, merged)

    def move(self, from_path: str, to_path: str) -> None:
        """Move a node and everything below it; only in a rearrange session. Nothing is copied.

        Raises:
            SessionStateError: It is not a rearrange session.
            NodeNotFoundError: No such node.
            AlreadyExistsError: The destination exists.
            FormatError: The repository is of the V1 format.
            InvalidInputError: The destination group does not exist, or is inside the node.
        """
        self._refuse_v1("moving nodes")
        area = self._area()
        if self._mode is not SessionMode.rearrange:
            raise NotRearrangingError(
                "nodes can only be moved in a rearrange session",
                do="Commit this session, and open `repo.rearrange_session(branch)`.",
            )
        area.move(paths.canonical(from_path), paths.canonical(to_path))

    # -- ending it ---------------------------------------------------------------------------

    def commit(
        self,
        message: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        allow_empty: bool = False,
    ) -> str:
        """Make the changes the new tip of the branch, all at once, and return the snapshot's id.

        Afterwards the session is read-only and shows that snapshot.

        Args:
            message: The commit message.
            metadata: Metadata of the commit.
            rebase_with: If others committed first, `rebase` with this solver and commit then.
            rebase_tries: Maximum number of rebases.
            allow_empty: Commit even if nothing changed.

        Raises:
            SessionStateError: Nothing to commit.
            ReadOnlyError: The session or the repository is read-only.
            RefNotFoundError: The branch was deleted in the meantime.
            ConflictError: The branch moved since the session started; the changes are kept.
            RebaseFailedError: It moved, and the solver did not resolve a conflict; as above.
        """
        from icevirt.repo.commits import commit

        branch = self._on_branch()
        if rebase_with is not None:
            _check_solver(rebase_with)
        with self._alone():
            self._refuse_nothing(allow_empty=allow_empty)
            for attempt in count():
                attempts = {} if rebase_with is None else {"rebase_attempts": attempt}
                try:
                    return self._end(
                        commit.commit(self._draft(message, metadata, attempts), branch)
                    )
                except ConflictError:
                    if rebase_with is None or attempt >= rebase_tries:
                        raise
                    self.rebase(rebase_with)
        raise AssertionError  # pragma: no cover - the loop has no other end

    def amend(
        self,
        message: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        allow_empty: bool = False,
    ) -> str:
        """Replace the branch's tip by one commit that holds its changes and the new ones.

        Raises:
            SessionStateError: Nothing to commit, or the tip is the initial snapshot.
            ReadOnlyError: The session or the repository is read-only.
            FormatError: The repository is of the V1 format.
            RefNotFoundError: The branch was deleted in the meantime.
            ConflictError: The branch moved since the session started; the changes are kept.
        """
        from icevirt.repo.commits import commit

        self._refuse_v1("amending a commit")
        branch = self._on_branch()
        with self._alone():
            self._refuse_nothing(allow_empty=allow_empty)
            return self._end(commit.amend(self._draft(message, metadata), branch))

    def flush(self, message: str, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Write the changes as a snapshot that is on no branch, and return its id.

        It is garbage unless a branch or tag points at it.

        Raises:
            ReadOnlyError: The session or the repository is read-only.
        """
        from icevirt.repo.commits import commit

        self._on_branch("cannot flush a forked session")
        with self._alone():
            return self._end(commit.commit(self._draft(message, metadata), None))

    def rebase(self, solver: ConflictSolver) -> None:
        """Repeat the changes on top of commits that others made to the branch in the meantime.

        Raises:
            ReadOnlyError: The session is read-only.
            RefNotFoundError: The branch was deleted in the meantime.
            ConflictError: The history that the session started from was rewritten.
            RebaseFailedError: The solver did not resolve a conflict; the session stands on the
                last commit that it could follow, with its changes.
        """
        from icevirt.repo.commits import commit

        branch, head = self._on_branch(), self._context.head
        _check_solver(solver)
        with self._alone():
            for staging in commit.rebase(self.assets, head, self._area(), branch, solver):
                self._settle(staging.base, staging)

    # -- inside ------------------------------------------------------------------------------

    def _on_branch(self, what: str = "") -> str:  # noqa: ARG002 - forks say it
        """Return the branch; a fork has none, and says what it cannot do."""
        self._area(FinishedSessionError)
        assert self._branch is not None
        return self._branch

    def _refuse_v1(self, what: str) -> None:
        from icevirt.versioning.v1_migration import refuse_v1

        refuse_v1(self._context.head.known().info, what)

    def _refuse_nothing(self, *, allow_empty: bool) -> None:
        if self._area().is_empty() and not allow_empty:
            raise NothingToCommitError(
                "there is nothing to commit", do="Change something, or pass allow_empty=True."
            )

    def _draft(
        self,
        message: str,
        metadata: Mapping[str, Any] | None,
        own: Mapping[str, Any] | None = None,
    ) -> SessionCommit:
        from icevirt.repo.commits.commit import SessionCommit
        from icevirt.versioning.repo_updates import as_json

        check("message", message, str)
        merged = {**self._context.commit_metadata, **(as_json(metadata) if metadata else {})}
        if own:
            given = merged.get("__icechunk")
            merged["__icechunk"] = {**(given if isinstance(given, Mapping) else {}), **own}
        return SessionCommit(
            assets=self.assets,
            head=self._context.head,
            staging=self._area(),
            message=message,
            metadata=merged,
            config=self.config,
        )

    def _end(self, made: Snapshot) -> str:
        self._settle(made)
        self._branch = None
        self._mode = SessionMode.readonly  # last: other threads take no lock from now on
        return str(made.id)


class ForkSession(Session):
    """A writable session that pickles, made by `Session.fork`; its parent session commits it."""

    def __init__(self, context: Context, staging: ChangeSet) -> None:
        super().__init__(context, staging.base, None, SessionMode.writable)
        self._staging = staging

    def __repr__(self) -> str:
        return f"<icevirt.ForkSession of {self.snapshot_id}>"

    def __reduce__(self) -> tuple[Any, ...]:
        self.assets.list_content_names()  # the process that commits them never saw their bytes
        return type(self), (self._context, self.copy_changes())

    @property
    def changes(self) -> ChangeSet:
        """What it changed."""
        return self._area()

    def copy_changes(self) -> ChangeSet:
        """Return what it changed so far, for another to take over."""
        with self.lock:
            return self._area().copy()

    def _on_branch(self, what: str = "a fork cannot commit") -> str:
        raise CommitRefusedError(
            what,
            do="Merge it into the session it came from, `session.merge(fork)`, and commit that.",
        )


def _check_solver(solver: ConflictSolver) -> None:
    from icevirt.versioning.merge.conflicts import ConflictSolver

    how = "Pass ConflictDetector(), BasicConflictSolver(...) or AppendConflictSolver(...)."
    check("a solver", solver, ConflictSolver, do=how)  # type: ignore[type-abstract]


class Sessions:
    """The part of `Repository` that opens sessions."""

    _head: RepoInfoFile
    _assets: Assets
    _config: RepositoryConfig
    _credentials: Mapping[str, Any]
    _options: RepositoryOptions
    _commit_metadata: dict[str, Any]

    _session_type: ClassVar[type[Session]] = Session

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
            as_of: A time with a time zone.

        Raises:
            InvalidInputError: Not exactly one of branch, tag and snapshot_id is given.
            RefNotFoundError: There is no such branch or tag.
            SnapshotNotFoundError: No such snapshot, or none that old.
        """
        info = self._head.read().info
        return self._reading(info, branch=branch, tag=tag, snapshot_id=snapshot_id, as_of=as_of)

    def _reading(self, info: RepoInfo, **version: Any) -> Session:
        return self._session_type(
            self._context(), self._assets.snapshot(walks.resolve(info, **version))
        )

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
        from icevirt.versioning import repo_updates

        repo_updates.refuse_disabled(
            self._head.read_v2("moving nodes").info, repo_updates.MOVE_NODE
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
        check("message", message, str)
        session = self.writable_session(branch)
        yield session.store
        session.commit(message, metadata, rebase_with=rebase_with, rebase_tries=rebase_tries)

    def _session(self, branch: str, mode: SessionMode) -> Session:
        info = self._head.read().info
        refuse_read_only(info)
        base = self._assets.snapshot(lookup.branch_tip(info, branch))
        return self._session_type(self._context(), base, branch, mode)

    def _context(self) -> Context:
        return Context(
            assets=self._assets,
            head=self._head,
            config=copy.deepcopy(self._config),
            credentials=self._credentials,
            options=self._options,
            commit_metadata=dict(self._commit_metadata),
        )


def session_as_opened(repository: Sessions, **version: Any) -> Session:
    """Do what `readonly_session` does, with the versions that were read last: without a request."""
    return repository._reading(repository._head.known().info, **version)  # noqa: SLF001  # see above
