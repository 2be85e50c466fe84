"""Implement `icevirt.update`: list the sources of a dataset again, and commit what differs.

list -> compare -> scan what is new -> plan, without the files that do not fit -> one commit.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from icevirt.api.choices import apart, check_group, share
from icevirt.api.dataset.change import Dataset
from icevirt.api.dataset.differences import (
    UpdateCall,
    Vanished,
    follow,
    look,
    rules_of,
    seconds_of,
)
from icevirt.api.dataset.files_held import CATALOG
from icevirt.api.dataset.recipes import Followed
from icevirt.api.dataset.records import digest_of
from icevirt.api.dataset.transaction import ExecutorStarter, is_overtaken, until_alone
from icevirt.api.dataset.update_change import DatasetUpdate, report_nothing
from icevirt.api.dataset.variables import VariablesUpdate
from icevirt.api.events import Clock, long_running
from icevirt.api.finish import add_notes
from icevirt.api.sources.reader_urls import Prefixes, prefixes_of
from icevirt.api.trust.readable_places import opening_of, remember_named
from icevirt.archive.options import names
from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.upkeep import UpdateReport
from icevirt.errors import (
    IcevirtError,
    InvalidInputError,
    ObjectNotFoundError,
    SourcesChangedError,
)
from icevirt.execution.selection import ExecutorChoice
from icevirt.model.json import loads
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.repo.layout import WORK
from icevirt.repo.made_here import identify, remember
from icevirt.storage.constructors import StorageLike
from icevirt.storage.protocol import Below, Storage, Version, Written
from icevirt.threads import MOMENT

_VANISHED = ("refuse", "missing", "remove")
_IF_RUNNING = ("wait", "skip")


def update(
    repo: StorageLike,
    *,
    recipe: str | os.PathLike[str] | None = None,
    trust_recipe: str | None = None,
    authorize: Prefixes = (),
    group: str = "/",
    branch: str = "main",
    since: str = "",
    settle: str | float | None = None,
    vanished: Vanished = "refuse",
    max_vanished: int | str | None = None,
    replaces: Mapping[str, str] | None = None,
    rescan: str | Iterable[str] = (),
    variables: str | Iterable[str] = (),
    drop_others: bool = False,
    if_running: IfRunning = "wait",
    dry_run: bool = False,
    message: str | None = None,
    catalog: StorageLike | None = None,
    access: Mapping[str, Any] | None = None,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> UpdateReport:
    """List the sources of a dataset again, and commit what is new, corrected or gone at once.

    The dataset becomes what a build of its files makes. Files that cannot be scanned, and files
    that do not fit the dataset, are held back with their errors, and tried again by the next
    update. What others committed stays, as with ``mode="w"`` of `icevirt.build`.

    Args:
        repo: Path or URL of the repository.
        recipe: A recipe of yours, a TOML file that names sources; by default the one that the last
            build left in the repository, if you made it on this machine.
        trust_recipe: The digest of the repository's recipe, if another one made it and you trust
            what it reads and runs.
        authorize: Directories and URL prefixes below which files may be read, beside those that
            the recipe names. A recipe of others that runs nothing and stays below them needs no
            digest.
        group: The group of the dataset.
        branch: The branch to commit to.
        since: Of directories, prefixes and patterns, look only at files whose path below the
            directory does not sort before this text, like ``"2024/11"``. Others are taken to be as
            they were.
        settle: How long ago a file must have changed for it to be taken, like ``"60s"`` or
            ``"10m"``: younger files wait for the next update.
        vanished: How files are handled that are gone: "refuse" stops the update, "missing" lets
            their steps read as missing values, "remove" takes their steps away.
        max_vanished: How many files may be gone, a number or a share like "5%"; by default one, or
            1% of the dataset's.
        replaces: Patterns of names of provisional files, by the pattern of the final files that
            replace them, like ``{"era5_*.nc": "era5t_*.nc"}``.
        rescan: Patterns of names of files that are scanned again though they did not change.
        variables: Make only these anew, from all files of the dataset, for a scanner was mended,
            say; names or paths. New, changed and missing files are left to another update. The
            files are scanned again, or only those that ``rescan`` names.
        drop_others: Remove what others stored or added in the dataset where it does not fit the
            files any more, like a variable of theirs along a dimension that grows; older
            snapshots keep it. By default that stops the update.
        if_running: "wait" for another update of the dataset to end, or "skip" this one.
        dry_run: Show what an update would do, and commit nothing. What is scanned for it stays in
            the catalog.
        message: Of the commit.
        catalog: As for `icevirt.append`.
        access: As for `icevirt.build`; added to what the recipe says.
        executor: As for `icevirt.build`.
        progress: As for `icevirt.build`.

    Raises:
        InvalidInputError: No build made the group, the recipe may not be used, the sources name no
            file, or more files are gone than may be.
        UnauthorizedError: A prefix of ``authorize`` covers no source and no file of the dataset.
        CombineError: The files do not combine, even without those that are new or changed.
        PlanChangedError: Other people's work would be lost.
        ConflictError: Others committed to the same group, each time before this update could.
        IcevirtError: As for `icevirt.build`.

    Examples:
        >>> icevirt.update("repo")  # now that archive/tas_2005.nc is there
        <UpdateReport ... + 1 file · time 2004-12-01 → 2005-12-01>
    """
    for name, word, known in (
        ("vanished", vanished, _VANISHED),
        ("if_running", if_running, _IF_RUNNING),
    ):
        if word not in known:
            raise InvalidInputError(
                f"{name} has an unknown value", do=f"Use one of {', '.join(known)}.", given=word
            )
    storage = share(repo)
    call = UpdateCall(
        storage=storage,
        catalog=Below(storage, CATALOG) if catalog is None else apart(storage, catalog),
        recipe=recipe,
        trusted=trust_recipe,
        authorize=prefixes_of(authorize),
        group=check_group(group),
        branch=branch,
        since=since,
        settle=seconds_of(settle),
        vanished=vanished,
        max_vanished=max_vanished,
        rules=rules_of(replaces),
        rescan=names(rescan),
        variables=tuple(
            name for each in names(variables) for part in each.split(",") if (name := part.strip())
        ),
        drop_others=drop_others,
        dry_run=dry_run,
        message=message,
        access=access or {},
    )
    if call.variables:
        _refuse_beside_variables(call)
    clock = Clock(progress)
    with ExitStack() as stack:
        stack.enter_context(long_running("update", clock))
        starter = ExecutorStarter(stack, clock, executor)
        seen: list[tuple[Dataset, Followed]] = []
        lease: Lease | None = None
        if not dry_run:
            dataset = look(call)
            seen.append((dataset, follow(call, dataset)))  # before anything is written
            lease = stack.enter_context(hold_lease(storage, branch=branch, group=call.group))
            if if_running == "skip" and (other := lease.find_other()):
                report = report_nothing(call, look(call))
                note = f"nothing was done: {other} updates this dataset"
                return replace(report, skipped=other, findings=(note,), seconds=clock.seconds)
        unsettled: set[str] = set()

        def is_lost(error: IcevirtError) -> bool:
            if not isinstance(error, SourcesChangedError):
                return is_overtaken(error)
            changed = error.facts.get("files") or ()
            unsettled.update(changed)  # they are still written, and wait
            return bool(changed)

        def attempt(_: int) -> UpdateReport:
            return _attempt(call, seen, frozenset(unsettled), starter, clock, lease)

        return until_alone("update", attempt, is_lost)


def _refuse_beside_variables(call: UpdateCall) -> None:
    """Refuse what says how files are handled that are new, changed or gone.

    Raises:
        InvalidInputError: Such an option is given.
    """
    given = {
        "since": call.since,
        "settle": call.settle,
        "vanished": "" if call.vanished == "refuse" else call.vanished,
        "max_vanished": call.max_vanished,
        "replaces": dict(call.rules),
    }
    if found := {name: value for name, value in given.items() if value}:
        raise InvalidInputError(
            f"variables are made anew of the same files, so {', '.join(found)} means nothing",
            do="Update the dataset first, without variables; then make them anew.",
            given=found,
        )


def _attempt(  # noqa: PLR0917 - an update, and what it stands on
    call: UpdateCall,
    seen: list[tuple[Dataset, Followed]],
    unsettled: frozenset[str],
    starter: ExecutorStarter,
    clock: Clock,
    lease: Lease | None,
) -> UpdateReport:
    """Update what is there; what was seen just now of it counts for the first attempt."""
    if not seen:
        dataset = look(call)
        seen.append((dataset, follow(call, dataset)))
    dataset, how = seen.pop()
    reach = SourceAccess.of({**how.access, **call.access})
    with grant_access(reach):
        work: DatasetUpdate | None = None
        try:
            work = DatasetUpdate.begin(call, dataset, how, unsettled, starter, clock)
        except IcevirtError:
            if lease is None or not lease.find_other():
                raise
        if work is None or (lease is not None and lease.find_other()):
            assert lease is not None, "else the error was raised"
            lease.wait()  # for another update, which changes what was seen
            return _attempt(call, seen, unsettled, starter, clock, lease)
        if lease is not None:
            work = replace(work, give_back=lease.give_back)
        report = VariablesUpdate.begin(work).run() if call.variables else work.run()
        opening = opening_of(report, call.storage, reach, how.places.prefixes)
        report = replace(report, opening=opening)
        report = add_notes(report, work.verification)
    if (how.is_own or how.is_trusted) and not call.dry_run and not report.already_built:
        remember(identify(call.storage), how.recipe.digest)
        remember_named(identify(call.storage), report.containers, how.named)
    return replace(report, seconds=clock.seconds)


type IfRunning = Literal["wait", "skip"]

SECONDS = 120.0
"""For which a lease holds after it was last renewed."""

_ended: dict[tuple[str, str], Version] = {}  # of leases that this process gave back
_POLL = 2.0  # seconds between looks at the lease of another


@dataclass(slots=True, kw_only=True)
class Lease:
    """A lease of a dataset's updates, while it is held."""

    storage: Storage
    path: str
    seconds: float = SECONDS
    _id: str = field(default_factory=lambda: uuid4().hex)
    _version: Version | None = None
    _other: Future[str] = field(default_factory=Future)  # who holds it at first; "": this one
    _mine: Future[None] = field(default_factory=Future)  # done as soon as this one has it
    _is_late: bool = False  # whether it was waited for
    _done: threading.Event = field(default_factory=threading.Event)

    def take(self) -> str:
        """Take the lease if it is free; else return who holds it."""
        last = _ended.pop((self.storage.url, self.path), None)
        if last is not None and self._write(last):  # nobody had it since this process
            return ""
        try:
            raw, version = self.storage.get_versioned(self.path)
        except ObjectNotFoundError:
            raw, version = b"", None
        if holder := _holder(raw):
            return holder
        return "" if self._write(version) else "another update that began at the same moment"

    def _write(self, version: Version | None) -> bool:
        written = self.storage.put_if(self.path, self._body(self.seconds), was=version)
        self._version = written.version if isinstance(written, Written) else None
        return isinstance(written, Written)

    def keep(self) -> None:
        """Take the lease, renew it until it is given back, and let the next update begin then."""
        try:
            self._other.set_result(other := self.take())
            while other and not self._done.wait(min(_POLL, self.seconds / 4)):
                other = self.take()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            for each in (self._other, self._mine):
                if not each.done():
                    each.set_exception(error)
            return
        self._mine.set_result(None)
        if not other:
            self._renew()
            with contextlib.suppress(IcevirtError):  # it ends by itself
                written = self.storage.put_if(self.path, self._body(0), was=self._version)
                if isinstance(written, Written):
                    _ended[self.storage.url, self.path] = written.version

    def find_other(self) -> str:
        """Return who held the lease when it was first asked for; "" where nobody did."""
        return "" if self._is_late else self._other.result()

    def wait(self) -> None:
        """Wait until this one has it; nobody else does then."""
        self._mine.result()
        self._is_late = True

    def give_back(self) -> None:
        """Begin to give it back: what is left to be done is a moment's work."""
        self._done.set()

    def _renew(self) -> None:
        while not self._done.wait(self.seconds / 4):
            try:
                written = self.storage.put_if(
                    self.path, self._body(self.seconds), was=self._version
                )
            except IcevirtError:
                continue  # the storage may answer the next time
            if not isinstance(written, Written):
                return
            self._version = written.version

    def _body(self, seconds: float) -> bytes:
        content = {
            "id": self._id,
            "holder": f"{socket.gethostname()}, process {os.getpid()}",
            "process": [_machine(), os.getpid()],
            "until": time.time() + seconds if seconds else 0,
        }
        return json.dumps(content).encode()


@contextlib.contextmanager
def hold_lease(
    storage: Storage, *, branch: str, group: str, seconds: float = SECONDS
) -> Iterator[Lease]:
    """Take the lease of a dataset while the block runs, and give it back at its end.

    Args:
        storage: The repository.
        branch: Of the dataset.
        group: Of the dataset.
        seconds: For which the lease holds after it was last renewed.
    """
    path = f"{WORK[0]}/leases/{digest_of(branch, group)}.json"
    lease = Lease(storage=storage, path=path, seconds=seconds)
    thread = threading.Thread(target=lease.keep, name="icevirt-lease", daemon=True)
    thread.start()
    patience: float | None = None
    try:
        yield lease
    except (KeyboardInterrupt, SystemExit):
        patience = MOMENT  # the storage may be what hangs
        raise
    finally:
        lease.give_back()
        thread.join(patience)


def _holder(raw: bytes) -> str:
    """Return the holder of a lease; "" where it ended."""
    try:
        content = loads(raw)
        until, holder = float(content["until"]), str(content["holder"])
    except (ValueError, KeyError, TypeError):
        return ""
    # one that ends later than any that is written is of a clock that is wrong
    is_held = time.time() < until < time.time() + 10 * SECONDS
    return holder if is_held and not _is_killed(content.get("process")) else ""


def _machine() -> str:
    """Return what has the process ids of this process for its own; "" where that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _is_killed(process: object) -> bool:
    """Say whether the holder of a lease was a process of this machine that is no more."""
    match process:
        case [str(machine), int(number)] if machine and machine == _machine() and number > 0:
            try:
                os.kill(number, 0)
            except ProcessLookupError:
                return True
            except (OSError, OverflowError):
                return False
    return False
