"""Define `CommitOptions`, and say in which of the option objects an option belongs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from typing import Annotated, Any, ClassVar

from icevirt.api.sources.reader_urls import NamedContainers, Publication
from icevirt.archive.options import Option, Options, count, declare, mapping
from icevirt.errors import ArgumentError, InvalidInputError
from icevirt.planning.combine.options import CombineOptions
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.scan.options import ScanOptions
from icevirt.versioning.repo_updates import as_json


def _metadata(given: Any) -> dict[str, Any] | None:
    held = mapping(given)
    as_json(held or {})
    return held


def _publish_as(given: Any) -> Mapping[str, str] | None:
    held = None if given is None else dict(given)
    Publication.of(held)
    return held


def _containers(given: Any) -> Mapping[str, str] | None:
    NamedContainers.of(given)
    return None if given is None else dict(given)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitOptions(Options):
    """How a dataset is committed to a repository."""

    KEYWORD: ClassVar[str] = "commit_options"

    branch: Annotated[str, Option("The branch to commit to.")] = "main"
    message: Annotated[str | None, Option("The message of the commit.")] = None
    metadata: Annotated[
        Mapping[str, Any] | None,
        Option("Metadata of the snapshot, beside what the build records itself.", _metadata),
    ] = None
    allow_changes: Annotated[
        bool,
        Option(
            'Let mode "w" remove variables and steps that the last build of the group made, change'
            " their types, fixed lengths and decoding, or remove other people's work that it would"
            " replace; without it, such builds are refused."
        ),
    ] = False
    rescan_changed: Annotated[
        bool,
        Option(
            "Scan files again that change between scan and commit, a few times, instead of"
            " stopping."
        ),
    ] = False
    verify: Annotated[
        int | None,
        Option(
            "Compare this many chunks with the files, and check all references, before the new"
            " snapshot gets on its branch. Differences leave the branch as it was.",
            count,
        ),
    ] = None
    promote: Annotated[
        str | None,
        Option(
            "The branch that is moved to the new snapshot at the very end, in one step, so that its"
            " readers see nothing that did not pass; the branch to commit to is made if absent."
        ),
    ] = None
    publish_as: Annotated[
        Mapping[str, str] | None,
        Option(
            "Prefixes of the files, and those under which the same files will be read: references"
            " are written with these. Lengths and checksums are taken from there; a file that is"
            " absent there, or of another length, stops the build.",
            _publish_as,
        ),
    ] = None
    containers: Annotated[
        Mapping[str, str] | None,
        Option(
            "Names of virtual chunk containers, and their prefixes: references below a prefix are"
            " written relative to the name (vcc://name/path), so that the files can be moved"
            " together by changing the container. Other references are absolute URLs.",
            _containers,
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check the options, and that they fit together.

        Raises:
            InvalidInputError: A value is none that the option takes, or a branch is to be promoted
                to itself.
        """
        super(CommitOptions, self).__post_init__()
        if self.promote is not None and self.promote == self.branch:
            raise InvalidInputError(
                "a build cannot be promoted to the branch that it commits to",
                do=write_remedy(
                    "Commit to another branch: ",
                    write_code('commit_options={"branch": "staging"}', "--branch staging"),
                    ".",
                ),
                branch=self.branch,
                promote=self.promote,
            )

    @property
    def publication(self) -> Publication:
        """Where readers find the files."""
        return Publication.of(self.publish_as)

    @property
    def places(self) -> tuple[str, ...]:
        """URLs of directories where readers find files, as the caller says."""
        published = (after for _, after in self.publication.prefixes)
        return (*published, *(prefix for prefix, _ in self.named_containers.names))

    @property
    def named_containers(self) -> NamedContainers:
        """The virtual chunk containers that have names."""
        return NamedContainers.of(self.containers)


OBJECTS: tuple[type[Options], ...] = (ScanOptions, CombineOptions, CommitOptions)
"""The option objects, in the order in which functions take them."""

BY_KEYWORD = {each.KEYWORD: each for each in OBJECTS}


def refuse_misplaced_options[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse unknown parameters with an error that says where options belong."""
    known = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if unknown := [name for name in kwargs if name not in known]:
            raise _refusal(function.__name__, unknown, known)
        return function(*args, **kwargs)

    return call


def _refusal(function: str, unknown: Iterable[str], known: Iterable[str]) -> ArgumentError:
    names = {each: each for each in known}
    for options in OBJECTS:
        if options.KEYWORD in names:
            for option in declare(options):
                names.setdefault(option.name, f'{options.KEYWORD}={{"{option.name}": ...}}')
    near = [get_close_matches(word, names, n=1, cutoff=0.75) for word in unknown]
    meant = ", ".join(names[match] for matches in near for match in matches)
    takes = f"{function} takes {', '.join(known)}."
    return ArgumentError(
        f"{function}() takes no parameter {', '.join(map(repr, unknown))}",
        do=f"Did you mean {meant}? {takes}" if meant else takes,
    )
