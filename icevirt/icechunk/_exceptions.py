"""icechunk's errors, and how icevirt's become them.

Each is a subclass of icevirt's error of the same name, with icechunk's constructor. What a method
of this package raises is one of these. icechunk's `NotFoundError` is a `KeyError`, which zarr takes
for a chunk that was never written; so what a store raises while zarr reads is an `IcechunkError`,
but never a `KeyError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from icevirt import errors
from icevirt.errors import IcevirtError
from icevirt.escaping import escape_line, escape_lines
from icevirt.icechunk._shims.error_kinds import ADVICE, WORDS, ErrorKind, classify

__all__ = [
    "AlreadyExistsError",
    "ConflictError",
    "ErrorKind",
    "FormatError",
    "IcechunkError",
    "InternalError",
    "InvalidInputError",
    "NodeNotFoundError",
    "NotFoundError",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepositoryNotFoundError",
    "SessionStateError",
    "SnapshotNotFoundError",
    "StorageError",
]


class IcechunkError(IcevirtError):
    """Root of icechunk's errors: what happened, and a code of `ErrorKind`."""

    code = "unknown"
    _kind: str | None = None
    _ours: type[IcevirtError] | None = None  # what `_class_of` made the class of
    _is_plain = False  # made by icechunk's constructor: the message is all there is

    def __init__(self, message: str = "", kind: str | None = None) -> None:
        super().__init__(message)
        self._kind = kind or ErrorKind.UNKNOWN.value
        self._is_plain = True

    @property
    def message(self) -> str:
        """What happened, with which values, and what to do."""
        return str(self)

    @property
    def kind(self) -> str:
        """The code of the failure, of `ErrorKind`."""
        return self._kind or classify(self._ours or type(self))[1].value

    def __str__(self) -> str:
        return " ".join(filter(None, (super().__str__(), ADVICE.get(self.kind))))

    @property
    def summary(self) -> str:
        """What happened, with which values, without what to do."""
        if self._is_plain:
            return self.what
        words = WORDS.get(self.kind, "")
        return f"{words}: {super().summary}" if words not in self.what else super().summary

    def __repr__(self) -> str:
        return escape_lines(
            f'icechunk.{type(self).__name__}(message="{self.message}", kind="{self.kind}")'
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as icevirt's error does, and become icechunk's again."""
        _, (kind, *parts) = super().__reduce__()
        state = {"_kind": self._kind, "_is_plain": self._is_plain}
        return _restore, (self._ours or kind, type(self).__name__, *parts), state


class ConflictError(IcechunkError, errors.ConflictError):
    """Another writer changed the same thing; the user or a policy must choose."""

    code = errors.ConflictError.code

    def __init__(
        self,
        expected_parent: str | None = None,
        actual_parent: str | None = None,
        message: str | None = None,
        kind: str | None = None,
    ) -> None:
        ids = (f'Some("{x}")' if x else "None" for x in (expected_parent, actual_parent))
        default = "Failed to commit, expected parent: {}, actual parent: {}".format(*ids)
        super().__init__(message or default, kind or ErrorKind.COMMIT_CONFLICT.value)
        self.facts = {"expected_parent": expected_parent, "actual_parent": actual_parent}

    def __repr__(self) -> str:
        expected, actual = self.expected_parent, self.actual_parent
        return f"icechunk.ConflictError(expected_parent={expected}, actual_parent={actual})"


class RebaseFailedError(ConflictError, errors.RebaseFailedError):
    """The changes do not combine with those of a commit that came first."""

    code = errors.RebaseFailedError.code

    def __init__(
        self,
        snapshot: str = "",
        conflicts: Sequence[Any] = (),
        message: str | None = None,
        kind: str | None = None,
    ) -> None:
        default = f"Rebase failed on snapshot {snapshot}: {len(conflicts)} conflicts found"
        super().__init__(None, None, message or default, kind or ErrorKind.REBASE_FAILED.value)
        self.facts = {"snapshot": snapshot, "conflicts": list(conflicts)}

    def __repr__(self) -> str:
        shown = f'snapshot="{self.snapshot}", conflicts={list(self.conflicts)}'
        return escape_line(f"icechunk.RebaseFailedError({shown})")


class NotFoundError(IcechunkError, errors.NotFoundError, KeyError):
    """A named thing does not exist; check the name."""

    code = errors.NotFoundError.code


class NodeNotFoundError(NotFoundError, errors.NodeNotFoundError):
    """The snapshot has no such array or group."""

    code = errors.NodeNotFoundError.code


class SnapshotNotFoundError(NotFoundError, errors.SnapshotNotFoundError):
    """The repository has no such snapshot."""

    code = errors.SnapshotNotFoundError.code


class RefNotFoundError(NotFoundError, errors.RefNotFoundError):
    """The repository has no such branch or tag."""

    code = errors.RefNotFoundError.code


class RepositoryNotFoundError(NotFoundError, errors.RepositoryNotFoundError):
    """No repository lies at this path."""

    code = errors.RepositoryNotFoundError.code


class AlreadyExistsError(IcechunkError, errors.AlreadyExistsError):
    """Something with this name already exists; choose another name, or allow replacing it."""

    code = errors.AlreadyExistsError.code


class ReadOnlyError(IcechunkError, errors.ReadOnlyError):
    """The session, store or repository does not accept writes."""

    code = errors.ReadOnlyError.code


class InvalidInputError(IcechunkError, errors.InvalidInputError):
    """The caller passed an invalid value; change the call."""

    code = errors.InvalidInputError.code


class SessionStateError(IcechunkError, errors.SessionStateError):
    """The session's state does not allow this (already committed, or nothing to commit)."""

    code = errors.SessionStateError.code


class StorageError(IcechunkError, errors.StorageError):
    """The storage refused or failed; retrying, or repairing the storage, may help."""

    code = errors.StorageError.code


class FormatError(IcechunkError, errors.FormatError):
    """A file does not follow the Icechunk format: it is damaged, or a newer client wrote it."""

    code = errors.FormatError.code


class InternalError(IcechunkError):
    """Never raised: what icevirt does not expect is an error of Python's, with its traceback."""


def become_icechunks(error: IcevirtError, *, reading: bool = False) -> None:
    """Make an error of icevirt's one of icechunk's, in place.

    Args:
        error: What was raised.
        reading: zarr reads, which takes each `KeyError` for a chunk that was never written.
    """
    if not isinstance(error, IcechunkError):
        hides = reading and isinstance(error, errors.NotFoundError)
        name = "IcechunkError" if hides else classify(type(error))[0]
        error.add_note(f"icevirt.errors.{type(error).__name__}: {error.code}")
        error.__class__ = _class_of(type(error), name)


_MADE: dict[tuple[type[IcevirtError], str], type[IcechunkError]] = {}


def _class_of(ours: type[IcevirtError], name: str) -> type[IcechunkError]:
    """Return the class that an error becomes: icechunk's alone, or both where ours says more."""
    base: type[IcechunkError] = globals()[name]
    if issubclass(base, ours) and classify(base) == classify(ours):
        return base
    bases = (base,) if issubclass(base, ours) else (base, ours)
    body = {
        "code": ours.code,
        "__doc__": ours.__doc__,
        "__module__": __name__,
        "_ours": ours,
    }
    return _MADE.setdefault((ours, name), type(name, bases, body))


def _restore(  # noqa: PLR0917 - the parts of a pickle
    kind: type[IcevirtError],
    name: str,
    what: str,
    do: str,
    facts: dict[str, Any],
    fixes: tuple[errors.Fix, ...],
) -> IcechunkError:
    named = kind if issubclass(kind, IcechunkError) else _class_of(kind, name)
    error = named.__new__(named, what)
    IcevirtError.__init__(error, what, do=do, fixes=fixes, **facts)
    return error
