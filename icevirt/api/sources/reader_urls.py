"""Decide where readers find the files: under published URLs, and in named containers.

References can be written with another prefix than was scanned. The published files have to exist
already. References carry their checksums; only the length shows that it is the same file, so
`icevirt.verify` compares values.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import unquote

import numpy as np

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan
from icevirt.archive.sources import SourceFile
from icevirt.connect.urls import Address, as_local_path, file_url, is_url, local_path, spell
from icevirt.errors import BuildError, InvalidInputError, NotFoundError
from icevirt.model.strings import Strings
from icevirt.objects.source_access import carrying, in_force
from icevirt.objects.source_lists.listing import list_sources
from icevirt.objects.source_lists.remote_listing import remote_files
from icevirt.planning.containers import containers_for
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.threads import Threads

_AT_A_TIME = 16  # files that are looked up
_FEW = 64  # files that are looked up rather than listed
_SHOWN = 5  # names in a message
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # what stands unchanged as the host of a URL


type Prefixes = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""Directories and URL prefixes, one or several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Prefixes of scanned files, and those under which their references are written."""

    prefixes: tuple[tuple[str, str], ...]  # URLs that end in "/", the longest first

    @classmethod
    def of(cls, given: Mapping[Any, Any] | None) -> Publication:
        """Read what a caller passed: paths or URLs.

        Raises:
            InvalidInputError: One is no path or URL.
        """
        pairs = ((prefix_url(before), prefix_url(after)) for before, after in (given or {}).items())
        return cls(prefixes=tuple(sorted(pairs, key=lambda pair: -len(pair[0]))))

    def targets(self, facts: CatalogFacts, plan: BuildPlan) -> tuple[SourceFile, ...]:
        """Return for each file of the plan the one that its references will lead to, if any is.

        Raises:
            InvalidInputError: A prefix fits no file, or files refer to other files.
            BuildError: A file is not there, or of another length.
        """
        if not self.prefixes:
            return ()
        if facts.places is not facts.files.url:
            raise InvalidInputError(
                "publish_as does not work for files of references: they point into other files",
                do="Leave out publish_as.",
            )
        urls, used = [], set()
        for url in plan.files.url:
            before, after = next((p for p in self.prefixes if url.startswith(p[0])), ("", ""))
            used.add(before)
            urls.append(_below(after, unquote(url.removeprefix(before))) if before else url)
        if missed := [before for before, _ in self.prefixes if before not in used]:
            raise InvalidInputError(
                "no file lies below this prefix of publish_as",
                do="Name directories or URL prefixes of the files.",
                publish_as=missed,
                first_file=plan.files.url[0],
            )
        found = self._find(urls)
        wrong = [
            f"{url} ({'is not there' if url not in found else f'{found[url].size} bytes'}, scanned:"
            f" {size} bytes)"
            for url, size in zip(urls, plan.files.size.tolist(), strict=True)
            if url not in found or found[url].size != size
        ]
        if wrong:
            raise BuildError(
                f"{len(wrong)} of {len(urls)} files are not at the published location",
                do="Copy the files first; nothing was committed.",
                files=wrong[:_SHOWN],
            )
        return tuple(found[url] for url in urls)

    def _find(self, urls: Sequence[str]) -> dict[str, SourceFile]:
        """Return what is at the URLs; buckets are listed where many files lie below a prefix."""
        found: dict[str, SourceFile] = {}
        for _, after in self.prefixes:
            below = [url for url in urls if url.startswith(after)]
            if len(below) > _FEW and not after.startswith(("file://", "http://", "https://")):
                with contextlib.suppress(InvalidInputError):  # each is looked at below
                    found |= {file.url: file for file in remote_files(after, ("",))}
        missing = [url for url in urls if url not in found]
        with Threads(_AT_A_TIME, "icevirt-publish") as pool:
            for url, file in zip(missing, pool.map(carrying(_look), missing), strict=True):
                if file is not None:
                    found[url] = file
        return found


def publish_plan(plan: BuildPlan, targets: Sequence[SourceFile]) -> BuildPlan:
    """Let the references of a plan lead to other files of the same content, if there are any."""
    if not targets:
        return plan
    urls = Strings.of([file.url for file in targets])
    files = replace(
        plan.files,
        url=urls,
        etag=Strings.of([file.etag for file in targets]),
        last_modified=np.array([file.last_modified for file in targets], np.int64),
    )
    return replace(plan, files=files, origin=plan.files, containers=containers_for(urls))


def prefixes_of(given: Prefixes) -> tuple[str, ...]:
    """Return the URLs of directories that a caller names, with a slash at the end.

    Raises:
        InvalidInputError: One is no path or URL.
    """
    is_one = isinstance(given, str | os.PathLike) or not isinstance(given, Iterable)
    found = []
    for each in cast("Iterable[Any]", (given,) if is_one else given):
        if not isinstance(each, str | os.PathLike) or not os.fspath(each):
            raise InvalidInputError(
                "a prefix is not the path or URL of a directory",
                do=write_remedy(
                    "Pass directories or URLs: ",
                    write_code(
                        'authorize=["/data/archive", "s3://bucket/archive/"]',
                        "--authorize, once for each",
                    ),
                    ".",
                ),
                found=each,
            )
        found.append(prefix_url(each))
    return tuple(found)


def prefix_url(given: Any) -> str:
    """Return a path or URL as the URL of a directory. Raises ``InvalidInputError``."""
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str) or not text:
        raise InvalidInputError(
            "this is not the path or URL of a directory",
            do=write_remedy(
                "Pass ",
                write_code(
                    'commit_options={"publish_as": {"/mnt/archive/": "s3://bucket/archive/"}}',
                    "--publish-as FROM=TO",
                ),
                ', or {"containers": {"archive": "s3://bucket/archive/"}}.',
            ),
            found=given,
        )
    text = spell(text)
    if is_url(text) and not text.startswith("file://"):
        return Address.parse(text.rstrip("/")).url + "/"
    return file_url(as_local_path(text)).rstrip("/") + "/"


def _below(prefix: str, path: str) -> str:
    """Return the URL of a path below a prefix, as this kind of URL is encoded."""
    if prefix.startswith("file://"):
        return file_url(os.path.join(local_path(prefix), path))
    address = Address.parse(prefix)
    return address._replace(key=f"{address.key.rstrip('/')}/{path}".lstrip("/")).url


def _look(url: str) -> SourceFile | None:
    try:
        (file,) = list_sources([url])
    except (NotFoundError, InvalidInputError):
        return None
    return file


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedContainers:
    """Names of containers by the URLs of their prefixes."""

    names: tuple[tuple[str, str], ...]  # (prefix, name), sorted

    @classmethod
    def of(cls, given: Mapping[Any, Any] | None) -> NamedContainers:
        """Read what a caller passed: paths or URLs by name.

        Raises:
            InvalidInputError: A name cannot stand in a URL, a prefix is no path or URL, or has two
                names.
        """
        if not isinstance(given, Mapping | None):
            raise _refusal(
                "containers must be a mapping of names to prefixes", found=type(given).__name__
            )
        names: dict[str, str] = {}
        for name, prefix in (given or {}).items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise _refusal("not a valid container name", name=name)
            url = prefix_url(prefix)
            if url in names:
                raise _refusal("a prefix has two names", url_prefix=url, names=[names[url], name])
            names[url] = name
        return cls(names=tuple(sorted(names.items())))

    def put_into_containers(self, facts: CatalogFacts, plan: BuildPlan) -> BuildPlan:
        """Return the plan with these containers, which say how `access` reached their objects.

        Raises:
            InvalidInputError: No file lies below a prefix, or its files are reached in several
                ways.
        """
        stores = in_force().stores()
        if not self.names and not stores:
            return plan
        # the files, or those that files of references refer to
        places = plan.files.url if facts.places is facts.files.url else facts.places
        found = containers_for(places, named=dict(self.names), stores=stores)
        return replace(plan, containers=found)


def _refusal(what: str, **facts: Any) -> InvalidInputError:
    return InvalidInputError(
        what,
        do=write_remedy(
            "Pass ",
            write_code(
                'commit_options={"containers": {"archive": "s3://bucket/prefix/"}}',
                "--container archive=s3://...",
            ),
            ", with names of letters, digits, dots and dashes.",
        ),
        **facts,
    )
