"""Read, back up and conditionally replace `repo`, the one mutable object.

Spec: "Updates to the repo info file". Everything a repository promises about concurrent writers
depends on `RepoInfoFile.swap`; pure edits decide the change and are repeated on newer states.
Repositories of the V1 format have several such objects, and look the same from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from icevirt.errors import (
    NotListableError,
    ObjectNotFoundError,
    ReadOnlyRepositoryError,
    RepositoryNotFoundError,
    StorageError,
    TooManyWritersError,
)
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoAvailability, RepoInfo, SnapshotSummary
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo import layout
from icevirt.storage.protocol import LostRace, Storage, Version
from icevirt.wire.repo_info import file

if TYPE_CHECKING:  # what reads other formats is imported where there is no `repo`
    from icevirt.repo.assets import HeldObjects
    from icevirt.repo.formats import OldFormats, OldRepository
    from icevirt.repo.v1.files import V1RepoState
    from icevirt.versioning.repo_updates import Edit

_IMMEDIATE = 5
_STALE_READS = 10
_OFTEN = 300.0  # seconds between two comparisons of clocks


class Tries(NamedTuple):
    """How often an update is tried where others are faster, and the pauses behind the first few."""

    most: int = 100
    first_pause: float = 0.02  # seconds
    longest_pause: float = 5.0


_TRIES = Tries()


class RepoObject(NamedTuple):
    """The repo info as it was read, with what is needed to replace it."""

    info: RepoInfo
    raw: bytes
    version: Version | None  # None: it is not there yet


type RepoState = RepoObject | V1RepoState | OldRepository


def old_of(current: RepoState) -> OldRepository | None:
    """Return a repository of a format before V1 as such; None for others."""
    if current.info.old is None:
        return None
    from icevirt.repo.formats import OldRepository

    assert isinstance(current, OldRepository)
    return current


class RepoInfoFile:
    """The `repo` object of one root.

    It is read from the storage each time; decoding is skipped where its bytes are those of before.
    """

    def __init__(self, storage: Storage, clock: Callable[[], int] | None = None) -> None:
        self.storage = storage
        self.now = clock or _now
        self.watch = ClockCheck()
        self._last: RepoObject | None = None
        self._snapshots: dict[ObjectId12, SnapshotSummary] = {}  # of a V1 repository
        self._before_v1: OldFormats | None = None
        self._tries = _TRIES
        self._most_updates: int | None = None

    def obey(self, config: Mapping[str, Any] | None) -> Storage:
        """Write as a configuration says from now on, and return the storage that does.

        It says how many updates the object holds, and how often one is tried; None is the default.

        Raises:
            FormatError: A setting is not valid.
        """
        from icevirt.model.config.document import RepositoryConfig

        known = RepositoryConfig.from_document(config)
        if known.document.get("storage"):  # seldom
            from icevirt.repo.storage_settings import with_settings

            self.storage = with_settings(self.storage, known.document)
        self._most_updates = known.num_updates_per_repo_info_file
        section = known.repo_update_retries
        retries = None if section is None else section.default
        if retries is not None:
            first, longest = retries.initial_backoff_ms, retries.max_backoff_ms
            self._tries = Tries(
                _TRIES.most if retries.max_tries is None else max(1, retries.max_tries),
                _TRIES.first_pause if first is None else first / 1000,
                _TRIES.longest_pause if longest is None else longest / 1000,
            )
        return self.storage

    def __reduce__(self) -> tuple[Any, ...]:
        kept = ("_before_v1", "_tries", "_most_updates")
        return RepoInfoFile, (self.storage, self.now), {name: vars(self)[name] for name in kept}

    def find(self) -> RepoState | None:
        """Read it; None where there is no repository. Raises ``FormatError``."""
        # an upgrade may end between the first and the second look
        found = self._repo_object() or self._older() or self._repo_object()
        if found is not None:
            layout.refuse_other_layouts(found.info.config, self.storage.url)
        return found

    def _older(self) -> V1RepoState | OldRepository | None:
        """Read a repository that has references in place of `repo`."""
        from icevirt.repo.v1 import files as v1

        try:
            files = v1.V1Files(self.storage, self._snapshots)
        except NotListableError:  # on a web server; references are found by listing them
            return None
        if (state := v1.state_of(files, self.storage)) is not None:
            return state
        if self._before_v1 is None:  # what is known of a repository of a format before V1 is kept
            from icevirt.repo.formats import before_v1

            self._before_v1 = before_v1()(self.storage)
        return self._before_v1.find(files.paths)

    def read(self) -> RepoState:
        """Read it.

        Raises:
            RepositoryNotFoundError: There is no repository.
            FormatError: It is damaged.
        """
        if (found := self.find()) is None:
            raise self._absence()
        return found

    def known(self) -> RepoState:
        """Return what was read last; read it where nothing was, or a format before V2."""
        return self._last or self.read()

    def _absence(self) -> RepositoryNotFoundError:
        has_rooted_keys = getattr(self.storage, "has_rooted_keys", None)
        if has_rooted_keys is not None and has_rooted_keys():
            return RepositoryNotFoundError(
                "no repository at this path, but the bucket holds keys that begin with '/', which"
                " icechunk wrote before 2.1 where the prefix was empty, and writes where it begins"
                " with '/'; icevirt cannot name them",
                do="Copy them below a prefix, such as by `aws s3 cp --recursive s3://BUCKET//"
                " s3://BUCKET/PREFIX/`, and pass that prefix. The official client opens such a"
                " repository with prefix='' and legacy_rooted_keys=True.",
                repo=self.storage.url,
            )
        return RepositoryNotFoundError(
            "no repository at this path",
            do=write_remedy(
                "Check the path, or make one with ",
                write_code("icevirt.build(files, repo)", "icevirt build FILES REPO"),
                ".",
            ),
            repo=self.storage.url,
        )

    def read_v2(self, what: str) -> RepoState:
        """Read it for something that the V1 format cannot do; raises as `read`.

        Raises:
            FormatError: It is of the V1 format.
        """
        from icevirt.versioning.v1_migration import refuse_v1

        current = self.read()
        refuse_v1(current.info, what)
        return current

    def backup(self, name: str) -> RepoInfo:
        """Read a backup. Raises ``ObjectNotFoundError``, ``FormatError``."""
        from icevirt.versioning.history import ops_log

        return file.decode(self.storage.get(layout.backup(ops_log.check_backup(name))))

    def update(
        self, *edits: Edit, held: HeldObjects | None = None, even_read_only: bool = False
    ) -> RepoInfo:
        """Apply edits in their order, all or none, and return the result.

        Objects that the result refers to may be held; they are written before it.

        Raises:
            ReadOnlyError: The repository does not take writes.
            StorageError: Others were faster too often, or would overwrite this one.
        """
        _, after = self.publish(
            lambda _: (None, edits),
            do="Try again, or let fewer processes write to it at once.",
            held=held,
            even_read_only=even_read_only,
        )
        return after

    def publish[Result](
        self,
        decide: Callable[[RepoState], tuple[Result, Sequence[Edit]]],
        *,
        do: str,
        held: HeldObjects | None = None,
        known: RepoState | None = None,
        create: Callable[[], RepoInfo] | None = None,
        even_read_only: bool = False,
    ) -> tuple[Result, RepoInfo]:
        """Apply the edits that are right for what is there; return what was decided, and the end.

        Args:
            decide: Returns a result and the edits, which may be none. It is asked again where
                another writer was faster.
            do: What the caller can do where that was so every time.
            held: Objects that the edits refer to, stored before them.
            known: What was read already.
            create: Returns what a new repository begins with, where there is none.
            even_read_only: Also where the repository does not take writes.

        Raises:
            ReadOnlyError: The repository does not take writes.
            RepositoryNotFoundError: There is none, and it is not to be created.
            StorageError: Others were faster every time, or would overwrite this one.
        """
        for count in range(self._tries.most):
            current, known = known or (self.read() if create is None else self.find()), None
            if current is None and create is not None:
                current = _unborn(create())
            assert current is not None
            if not even_read_only:
                refuse_read_only(current.info)
            result, edits = decide(current)
            if (after := self.swap(current, *edits, held=held)) is not None:
                return result, after
            pause(count, self._tries)
        raise TooManyWritersError(
            "other writers changed the repository before every attempt of this one",
            do=do,
            tries=self._tries.most,
        )

    def swap(
        self, current: RepoState, *edits: Edit, held: HeldObjects | None = None
    ) -> RepoInfo | None:
        """Apply edits to what was read; None if another writer changed it meanwhile."""
        if not isinstance(current, RepoObject):
            for path, body in () if held is None else held.take().items():
                self.storage.put(path, body)
            return current.swap(edits)
        after, backups = self._apply(current.info, current.raw, edits)
        if not backups and current.version is not None:
            return after
        return after if self._publish(after, backups, current, held) else None

    def create(self, first: RepoInfo) -> RepoInfo | None:
        """Make the repository; None if another writer made one."""
        return self.swap(_unborn(first))

    def _apply(
        self, info: RepoInfo, raw: bytes, edits: tuple[Edit, ...]
    ) -> tuple[RepoInfo, dict[str, bytes]]:
        """Return the last state, and the states before it as backups by name."""
        from icevirt.model.config.document import RepositoryConfig
        from icevirt.versioning.history import ops_log

        backups: dict[str, bytes] = {}
        for edit in edits:
            if (done := edit(info)) is None:
                continue
            changed, kind = done
            now = self.now()
            name = ops_log.backup_name(now, ObjectId12.random())
            limit = self._most_updates
            if limit is None:
                limit = RepositoryConfig.from_document(changed.config).ops_log_limit
            after = ops_log.add_entry(changed, kind, now=now, backup=name, limit=limit)
            backups[name] = raw or file.encode(info)
            info, raw = after, b""
        return info, backups

    def _publish(
        self,
        after: RepoInfo,
        backups: dict[str, bytes],
        was: RepoObject,
        held: HeldObjects | None,
    ) -> bool:
        from icevirt.model.config.document import refuse_unconditional

        refuse_unconditional(after.config, self.storage.url)
        after = file.fold(after)
        body, now = file.encode(after), self.now()
        before = {layout.backup(name): raw for name, raw in backups.items()}
        if self.watch.is_due(now):  # compared with the time of a backup, before anything else
            for path, raw in before.items():
                self.storage.put(path, raw)
                self.watch.check(self.storage, path, now)
            before = {}
        if held is not None:
            before |= held.take()
        outcome = self.storage.put_if(layout.REPO, body, was=was.version, after=before)
        if isinstance(outcome, LostRace):
            if outcome.perhaps_first_written and self._is_built_upon(after, backups, was):
                return True
            for name in backups:
                self.storage.delete(layout.backup(name))
            return False
        self._last = RepoObject(after, body, outcome.version)
        return True

    def _is_built_upon(self, after: RepoInfo, backups: Collection[str], was: RepoObject) -> bool:
        """Say whether a state that is there no more was there, by what others logged since."""
        from icevirt.versioning.history import ops_log

        info = self._read_newer(was)
        while not ops_log.follows(info, backups):
            older = ops_log.newest_at(info) < ops_log.newest_at(after)
            if older or info.repo_before_updates is None:
                return False
            info = self.backup(info.repo_before_updates)  # a short log goes on there
        return True

    def _read_newer(self, was: RepoObject) -> RepoInfo:
        """Read what replaced a state, from a storage that just refused to replace that state.

        An older state is what a cache remembers, and says nothing about what took place.

        Raises:
            StorageError: That is all there is to be read.
        """
        from icevirt.versioning.history import ops_log

        for attempt in range(_STALE_READS):
            found = self._repo_object()
            if found is not None and (
                was.version is None or ops_log.newest_at(found.info) > ops_log.newest_at(was.info)
            ):
                return found.info
            pause(_IMMEDIATE + attempt)
        raise StorageError(
            "it is unknown whether the write took place: its answer was lost, and the store "
            "returns an older state",
            do="Check the history before you repeat the write, and turn off the cache in front of "
            "the store.",
            repo=self.storage.url,
        )

    def _repo_object(self) -> RepoObject | None:
        try:
            raw, version = self.storage.get_versioned(layout.REPO)
        except ObjectNotFoundError:
            return None
        last = self._last
        info = last.info if last is not None and last.raw == raw else file.decode(raw)
        self._last = found = RepoObject(info, raw, version)
        return found  # other threads may have replaced the last one with an older one


class ClockCheck:
    """Remembers when the two clocks were last compared, so that not every commit has to ask."""

    def __init__(self) -> None:
        self.lag = 0
        """Microseconds that the storage's clock was behind this machine's."""
        self._looked: float | None = None  # by the monotonic clock
        self._now = 0

    def check(self, storage: Storage, path: str, now: int) -> None:
        """Compare the clocks by an object just written; ``now`` was this machine's before that.

        Raises:
            StorageError: This machine's clock is far ahead of the storage's.
        """
        from icevirt.versioning.history.timestamps import lag, refuse_ahead

        looking = time.monotonic()
        for info in storage.list(path):
            refuse_ahead(now, info.last_modified)
            self.lag = lag(now, info.last_modified)
        self._looked, self._now = looking, now

    def is_due(self, now: int) -> bool:
        """Say whether it is time to compare again, or the clock was set since."""
        from icevirt.versioning.history.timestamps import MOST_AHEAD

        looking = time.monotonic()
        if self._looked is None or looking - self._looked > _OFTEN:
            return True
        passed = (looking - self._looked) * 1_000_000
        return abs(now - self._now - passed) > MOST_AHEAD / 2


@lru_cache(256)
def clock_check_of(url: str) -> ClockCheck:
    """Return what compares the clocks for all datasets of a repository in this process.

    One that watches an archive commits again and again, and would compare them each time.
    """
    del url
    return ClockCheck()


def refuse_read_only(info: RepoInfo) -> None:
    """Raise ``ReadOnlyError`` unless the repository takes writes."""
    if info.old is not None:
        info.old.refuse()
    if info.status.availability is not RepoAvailability.online:
        raise ReadOnlyRepositoryError(
            "the repository was made read-only",
            do="Make it writable again: repo.set_status(RepoStatus(RepoAvailability.online)).",
            reason=info.status.limited_availability_reason,
        )


def _unborn(first: RepoInfo) -> RepoObject:
    """Return the state before a repository is there, which is replaced as any other."""
    return RepoObject(first, file.encode(first), None)


def pause(attempt: int, tries: Tries = _TRIES) -> None:
    """Wait before the next attempt: the first few follow at once, then longer, never in step."""
    if attempt >= _IMMEDIATE:
        from icevirt.connect.retry import jitter

        longest = min(tries.longest_pause, tries.first_pause * 2 ** (attempt - _IMMEDIATE))
        time.sleep(jitter(0, longest))


def _now() -> int:
    return time.time_ns() // 1000
