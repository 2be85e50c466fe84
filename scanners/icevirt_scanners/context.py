"""Hold what the variables of one file share during a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, Finding, ScannedArray, ScannedFile, Severity
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model.chunks import Locations
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ByteSource, Policy, Scanner, ScannerOptions

LEAVE_OUT = write_remedy("Leave the variable out with ", write_option("drop_variables"), ".")


@dataclass(slots=True)
class Budget:
    """How many bytes of values may still be read and stored."""

    left: int
    file: str

    def spend(self, nbytes: int, *, variable: str, cause: str) -> None:
        """Take ``nbytes``.

        Raises:
            UnsupportedError: That many are not left.
        """
        if nbytes > self.left:
            raise UnsupportedError(
                "a variable cannot be referenced and is too large to be stored",
                do=write_remedy(
                    "Raise ",
                    write_option("max_native_bytes_per_file"),
                    ", or leave it out with ",
                    write_option("drop_variables"),
                    ".",
                ),
                file=self.file,
                variable=variable,
                cause=cause,
                nbytes=nbytes,
                left=self.left,
            )
        self.left -= nbytes


@dataclass(slots=True, kw_only=True)
class ScanContext:
    """The file, the request and what was found so far."""

    source: ByteSource
    options: ScannerOptions
    location: Locations
    budget: Budget
    findings: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    equal: frozenset[str] = frozenset()  # paths of arrays that must be alike in all files
    unverifiable: set[str] = field(default_factory=set)  # URLs of referenced files, no checksum

    @classmethod
    def of(cls, source: ByteSource, options: ScannerOptions, **more: Any) -> Self:
        """Begin a scan of ``source``."""
        file = source.file
        return cls(
            source=source,
            options=options,
            location=Locations.one(
                file.url, etag=file.etag, last_modified=file.last_modified_seconds
            ),
            budget=Budget(options.max_native_bytes, file.url),
            **more,
        )

    def describe(
        self,
        scanner: Scanner,
        groups: tuple[ScannedGroup, ...],
        arrays: Sequence[ScannedArray],
        tally: Mapping[str, int] | None = None,
    ) -> ScannedFile:
        """Return the file as a scanner describes it, with what was found on the way."""
        return ScannedFile(
            source=self.source.file,
            scanner=scanner.name,
            scanner_version=scanner.version,
            groups=groups,
            arrays=arrays,
            findings=tuple(self.findings),
            left_out=tuple(self.left_out),
            tally=tally or {},
        )

    def wants(self, path: str) -> bool:
        """Say whether a variable is selected; if not, list it as left out."""
        wanted = self.options.wants(path)
        if not wanted:
            self.left_out.append(path)
        return wanted

    def arrays[T](
        self, variables: Iterable[tuple[str, T]], make: Callable[[str, T], ScannedArray]
    ) -> tuple[ScannedArray, ...]:
        """Return the arrays made of the wanted ones of some variables; see `represented`."""
        made = (
            self.represent(path, partial(make, path, variable))
            for path, variable in variables
            if self.wants(path)
        )
        return tuple(array for array in made if array is not None)

    def represent[T](self, path: str, make: Callable[[], T]) -> T | None:
        """Return what is made of a variable, None where it cannot be and may be left out.

        Raises:
            UnsupportedError: It cannot be represented, and may not be left out.
        """
        try:
            return make()
        except UnsupportedError as error:
            if self.options.policy_of(path) is not Policy.skip:
                raise
            cause = error.facts.get("cause")  # other facts differ from file to file
            self.skip(path, f"{error.what}: {cause}" if cause else error.what)
            return None

    def choose_facts(self, array: ScannedArray) -> Fact:
        """Return the facts about an array that combining files will need."""
        return self.options.wanted_of(array, self.equal)

    def values_of(self, read: Callable[[], ScannedArray]) -> FactsBeside | None:
        """Return the values of an array beside its references; None where they cannot be stored.

        That makes no file bad unless the options are ``strict``.

        Raises:
            UnsupportedError: They cannot be stored, and the options are strict.
        """
        left = self.budget.left
        try:
            array = read()
        except UnsupportedError:
            if self.options.strict:
                raise
            self.budget.left = left
            return None
        return FactsBeside(
            digest=array.digest,
            labels=array.labels,
            labels_dtype=array.labels_dtype,
            values=replace(array, digest="", labels=None, labels_dtype=""),
        )

    def refusal(
        self, path: str, what: str, *, do: str = LEAVE_OUT, **facts: Any
    ) -> UnsupportedError:
        """Return the error for a variable that cannot be represented."""
        file = self.source.file.url
        return UnsupportedError(what, do=do, file=file, variable=path, **facts)

    def skip(self, path: str, cause: str) -> None:
        """Leave a variable out, and say so."""
        self.left_out.append(path)
        self.warn(path, "left-out", f"left out by its policy 'skip': {cause}")

    def tell(self, path: str, code: str, message: str, severity: Severity = Severity.note) -> None:
        """Add a finding."""
        self.findings.append(Finding(path=path, code=code, message=message, severity=severity))

    def warn(self, path: str, code: str, message: str) -> None:
        """Add a warning."""
        self.tell(path, code, message, Severity.warning)


def check_dimensions(found: Iterable[str], url: str) -> None:
    """Refuse dimensions whose names become one: their lengths and labels would be mixed up.

    Args:
        found: The path of each dimension, or its name where there are no groups.
        url: Of the file.

    Raises:
        UnsupportedError: There are some.
    """
    if twice := sorted(name for name, count in Counter(found).items() if count > 1):
        raise UnsupportedError(
            "several dimensions would have the same name in Zarr",
            do="Rename one of them in the file.",
            file=url,
            dimensions=twice,
        )


def no_such_group(url: str, group: str, there: Sequence[str]) -> ScanError:
    """Return the error for a group that a file lacks."""
    return ScanError(
        "the file has no such group",
        do=write_remedy(
            "Name one that is there in ", write_option("source_group"), ", or omit it."
        ),
        file=url,
        group=group,
        there=list(there),
    )
