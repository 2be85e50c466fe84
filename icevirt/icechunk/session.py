"""A session with icechunk's signatures and ``_async`` twins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import batched
from typing import TYPE_CHECKING, Any

from icevirt.errors import InvalidInputError, ReadOnlyForkError
from icevirt.escaping import escape_line
from icevirt.icechunk._shims import logs
from icevirt.icechunk._shims.classes import AsyncTwin, raises_icechunks
from icevirt.icechunk._shims.shown import as_html
from icevirt.icechunk.store import IcechunkStore
from icevirt.repo import session as engine
from icevirt.repo.session import SessionMode

if TYPE_CHECKING:
    from icevirt.icechunk.config import RepositoryConfig
    from icevirt.icechunk.conflicts import ConflictSolver
    from icevirt.icechunk.snapshots import Diff

__all__ = ["ForkSession", "Session", "SessionMode"]


class Session(engine.Session):
    """One version of a repository, from `Repository.readonly_session` or `writable_session`."""

    _any_codec = True  # as icechunk, which reads no codecs

    move_async = AsyncTwin("move")
    get_node_id_async = AsyncTwin("get_node_id")
    all_virtual_chunk_locations_async = AsyncTwin("all_virtual_chunk_locations")
    chunk_type_async = AsyncTwin("chunk_type")
    merge_async = AsyncTwin("merge")
    commit_async = AsyncTwin("commit")
    amend_async = AsyncTwin("amend")
    flush_async = AsyncTwin("flush")
    rebase_async = AsyncTwin("rebase")

    def __repr__(self) -> str:
        kind = "ForkSession" if self.is_fork else "Session"
        lines = [
            f"<icechunk.session.{kind}>",
            f"read_only: {self.read_only}",
            f"snapshot_id: {self.snapshot_id}",
        ]
        if not self.read_only:
            lines += [
                f"branch: {escape_line(self.branch)}",
                f"has_uncommitted_changes: {self.has_uncommitted_changes}",
            ]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    def __eq__(self, other: object) -> bool:
        """Say whether two sessions show the same version, neither with changes of its own."""
        if not isinstance(other, engine.Session):
            return False
        return self is other or (
            self.read_only
            and other.read_only
            and self.snapshot_id == other.snapshot_id
            and self.assets.storage == other.assets.storage
        )

    def status(self) -> Diff:  # type: ignore[override]
        """Return what the session changed."""
        from icevirt.icechunk.snapshots import Diff

        return Diff(super().status())

    def commit(self, *args: Any, **kwargs: Any) -> str:
        """Make the changes the new tip of the branch; arguments as in icevirt."""
        from icevirt.icechunk.conflicts import as_lists

        if logs.is_on("warn"):
            self._warn_of_small_caches()
        with as_lists():
            try:
                return super().commit(*args, **kwargs)
            except InvalidInputError as error:
                if isinstance(error.__cause__, TypeError):
                    raise TypeError(f"commit metadata is not JSON: {error.__cause__}") from error
                raise

    def _warn_of_small_caches(self) -> None:
        """Say where the configuration lets icechunk clients cache less than one commit has."""
        from icevirt.icechunk.config import CachingConfig

        caching = self.config.caching or CachingConfig()
        refs = max(map(len, self.status().updated_chunks.values()), default=0)
        nodes = len(self.snapshot.nodes)
        for found, most, what in (
            (refs, caching.num_chunk_refs, "chunk references"),
            (nodes, caching.num_snapshot_nodes, "nodes"),
        ):
            if most is not None and found > most:
                kept = what.removeprefix("chunk ")
                logs.log(
                    "warn",
                    f"this commit has {found} {what} in one file, and icechunk clients keep"
                    f" {most} {kept} in memory: raise RepositoryConfig.caching",
                )

    def all_virtual_chunk_locations(self) -> list[str]:
        """Return the locations of virtual chunks, relative ones below their container."""
        containers = self.config.virtual_chunk_containers.values()
        prefixes = {f"vcc://{each.name}/": each.url_prefix for each in containers if each.name}

        def absolute(url: str) -> str:
            named = next((prefix for prefix in prefixes if url.startswith(prefix)), None)
            return url if named is None else prefixes[named] + url.removeprefix(named)

        return [absolute(url) for url in super().all_virtual_chunk_locations()]

    def merge(self, *others: engine.Session) -> None:
        """Merge the changes of forks; the session itself, which threads may share, has them."""
        super().merge(*(each for each in others if each is not self))

    def rebase(self, solver: ConflictSolver) -> None:
        """Repeat the changes on top of commits that others made in the meantime."""
        from icevirt.icechunk.conflicts import as_lists

        with as_lists():
            super().rebase(solver)

    __hash__ = engine.Session.__hash__

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the configuration."""
        from icevirt.icechunk.config import RepositoryConfig

        return RepositoryConfig.of(super().config)

    @property
    def store(self) -> IcechunkStore:
        """A zarr store over the session."""
        made = IcechunkStore(self, on_stale=self.on_stale)
        made._is_open = True  # noqa: SLF001 - as programs find icechunk's
        return made

    async def chunk_coordinates(  # type: ignore[override]
        self, array_path: str, batch_size: int = 1000
    ) -> AsyncIterator[tuple[int, ...]]:
        """Yield the index of each chunk that has a reference."""
        for batch in batched(super().chunk_coordinates(array_path).tolist(), batch_size):
            for index in batch:
                yield tuple(index)

    def fork(self) -> ForkSession:
        """Return a session that pickles, for a worker to write with, and to `merge` afterwards."""
        if self.read_only:
            raise ReadOnlyForkError(
                "only a writable session can be forked", do="Open one with writable_session."
            )
        made = super().fork()
        return ForkSession(made._context, made.changes)  # noqa: SLF001 - of a class above ours

    @property
    def is_fork(self) -> bool:
        """Whether it came from `fork`."""
        return False


class ForkSession(Session, engine.ForkSession):
    """A writable session that pickles, made by `Session.fork`; its parent session commits it."""

    @property
    def is_fork(self) -> bool:
        """Whether it came from `fork`."""
        return True


raises_icechunks(Session)
raises_icechunks(ForkSession)
