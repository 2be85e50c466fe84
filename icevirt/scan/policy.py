"""Apply the user's policy for a variable: reference it, store it, drop it, or fail.

By default a variable is referenced if a reader of its chunks sees what the file's own library
reads, else stored within the budget, else the scan of the file stops. A policy changes that for
variables by name, path or pattern; the first matching pattern counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.chunks import ChunkType

EVERY = "*"  # the pattern of all variables


class Policy(StrEnum):
    """How to treat a variable."""

    fail = "fail"  # as is best; what cannot be represented stops the scan of the file
    skip = "skip"  # as is best; what cannot be represented is left out, with a warning
    reference = "reference"  # referenced, or an error
    native = "native"  # read and stored, in chunks
    inline = "inline"  # read and stored, in one chunk


type PolicyLike = str | Mapping[str, str]


def rules_of(given: Any) -> tuple[tuple[str, str], ...]:
    """Return the given policies as pairs of pattern and policy; the first that fits counts.

    Raises:
        InvalidInputError: It is no policy, or no mapping of patterns to policies.
    """
    if isinstance(given, str):
        given = {EVERY: given}
    known = [each.value for each in Policy]
    if not isinstance(given, Mapping) or not all(
        isinstance(pattern, str) and pattern and what in known for pattern, what in given.items()
    ):
        raise InvalidInputError(
            "not a policy for variables",
            do=f"Pass one of {', '.join(known)}, or a mapping of variables to them:"
            ' {"/raw/*": "skip"} (--variable-policy "/raw/*=skip").',
            given=given,
        )
    rules = tuple((pattern, str(what)) for pattern, what in given.items())
    return () if rules == ((EVERY, Policy.fail.value),) else rules


def policy_of(path: str, rules: Collection[tuple[str, str]]) -> Policy:
    """Return the policy for the variable at a path."""
    if not rules:
        return Policy.fail
    return next((Policy(what) for pattern, what in rules if fits(path, pattern)), Policy.fail)


def fits(path: str, pattern: str) -> bool:
    """Say whether a pattern means a variable: by path where it begins with a slash, or by name."""
    return fnmatchcase(path if pattern.startswith("/") else paths.name(path), pattern)


def is_name(pattern: str) -> bool:
    """Say whether a pattern names one variable, which should be there then."""
    return not any(sign in pattern for sign in "*?[")


def enforce(scanned: ScannedFile, rules: tuple[tuple[str, str], ...]) -> None:
    """Check that a scanner treated the variables as their policies require.

    Raises:
        UnsupportedError: One that must be referenced is stored, or the other way round.
    """
    if not rules:
        return
    for array in scanned.arrays:
        policy = policy_of(array.path, rules)
        if policy is Policy.reference and array.references.count(ChunkType.inline):
            raise UnsupportedError(
                "a variable with the policy 'reference' cannot be referenced",
                do='Use the policy "native" or "inline", or leave it out with drop_variables.',
                file=scanned.source.url,
                variable=array.path,
                cause=_cause(scanned, array),
            )
        stored = policy in (Policy.native, Policy.inline)
        if stored and array.references.count(ChunkType.virtual):
            raise UnsupportedError(
                f"scanner {scanned.scanner!r} cannot store the values of variables that can be "
                "referenced",
                do="Remove its policy, or leave the variable out with drop_variables.",
                file=scanned.source.url,
                variable=array.path,
                policy=policy.value,
            )


def _cause(scanned: ScannedFile, array: ScannedArray) -> str:
    causes = (
        finding.message
        for finding in scanned.findings
        if finding.path == array.path and finding.code in ("stored-natively", "chunks-stored")
    )
    return next(causes, "its values are strings, compact, or order the files")
