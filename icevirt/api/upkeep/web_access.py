"""Say whether a page in a browser can read a repository and its files."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from icevirt.api.authorizing import refuse_unauthorized
from icevirt.api.verify import in_order
from icevirt.archive.reports.web_access import WebAccessReport, WebProblem, WebProblemKind
from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkType
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.objects.http.browser import PageRequest, look_as_browser
from icevirt.objects.http.connections import Origin
from icevirt.planning.schedule.sampling import sample
from icevirt.repo import layout
from icevirt.repo.authorization import Authorization, authorized
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.tasks.verify.matching import chosen_of

ANY_PAGE = "https://page.example"
"""Where a page is of which nothing else is said: under https, on another server."""

_OPTIONAL = ("config.yaml", "refs/branch.main/ref.json")  # of V1; the client looks for them first
_REFERENCES = 32  # that are drawn at random; their files are requested
_BYTES = 64  # requested of each file, at most


def verify_as_browser(
    repo: StorageLike,
    *,
    origin: str | None = None,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    seed: int | None = None,
    authorize_virtual_chunk_access: Authorization = None,
) -> WebAccessReport:
    """Request parts of a repository and of a sample of its files, as a page would.

    Args:
        repo: URL under which a web server shows the repository.
        origin: URL of the page, or of its server; `ANY_PAGE` unless given.
        branch: The branch whose newest version is looked at; ``main`` unless another is named.
        tag: The tag whose version is looked at.
        snapshot_id: The version that is looked at.
        seed: Of the sample; by default another one each time. It is in the report.
        authorize_virtual_chunk_access: As for `Repository.open`: prefixes to read below.

    Raises:
        InvalidInputError: The repository or the page is not on a web server.
        UnauthorizedError: A container of files that would be requested was not authorized.
        RepositoryNotFoundError, RefNotFoundError, SnapshotNotFoundError: They do not exist.
    """
    storage = storage_of(repo)
    if not _is_web(storage.url):
        raise InvalidInputError(
            "a page reads repositories over http and https only",
            do="Pass the URL under which a web server shows the repository.",
            repo=storage.url,
        )
    page = _origin_of(origin or ANY_PAGE)
    access = authorized(authorize_virtual_chunk_access)
    opened = Repository.open(storage, authorize_virtual_chunk_access=access)
    ref = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id}
    if not any(ref.values()):
        ref["branch"] = "main"
    session = opened.readonly_session(**ref)  # type: ignore[arg-type]  # a name each
    root = storage.url.rstrip("/")
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    drawn = _drawn(session, seed)
    objects = [
        PageRequest(url=f"{root}/{path}", end=1, is_file=False)
        for path in _objects(session, [key for key, _ in drawn])
    ]
    objects += [
        PageRequest(url=f"{root}/{path}", end=1, is_file=False, is_optional=True)
        for path in _OPTIONAL
    ]
    files = {url: each for key, rows in drawn for url, each in _files(session, key, rows)}
    refuse_unauthorized(_used(session, filter(_is_web, files)), access, what="verification")
    found = list(_off_the_web(files))
    for request in [*objects, *(each for url, each in files.items() if _is_web(url))]:
        found += look_as_browser(request, page)
    return WebAccessReport(
        repo=storage.url,
        snapshot_id=session.snapshot_id,
        origin=page,
        objects=len(objects),
        files=len(files),
        seed=seed,
        problems=_together(found),
    )


def _origin_of(page: str) -> str:
    """Return the origin of a page."""
    with suppress(ValueError):
        origin = Origin.of(page)
        if origin.scheme in ("http", "https") and origin.host:
            return str(origin)
    raise InvalidInputError(
        "this is not the address of a page",
        do="Pass its URL, like https://maps.example.org.",
        origin=page,
    )


def _used(session: Session, urls: Iterable[str]) -> list[VirtualChunkContainer]:
    """Return the containers of files."""
    containers = session.config.virtual_chunk_containers
    longest = sorted(containers, key=len, reverse=True)
    found = (next(filter(url.startswith, longest), None) for url in urls)
    return [containers[prefix] for prefix in dict.fromkeys(found) if prefix is not None]


def _is_web(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")


def _drawn(session: Session, seed: int) -> list[tuple[ObjectId12, NDArray[np.int64]]]:
    """Return some manifests with the numbers of some of their references."""
    manifests = in_order(session.snapshot)
    counts = np.array([count for _, count in manifests], np.int64)
    rows = sample(counts, _REFERENCES, seed=seed)
    return [(key, some) for (key, _), some in zip(manifests, rows, strict=True) if len(some)]


def _objects(session: Session, manifests: list[ObjectId12]) -> Iterator[str]:
    """Yield the paths of an object of each kind that the version has."""
    yield "repo"
    yield layout.snapshot(session.snapshot.id)
    for key in manifests[:1]:
        yield layout.manifest(key)
    for key in manifests:
        for table in session.assets.read_manifest(key).arrays.values():
            native = np.flatnonzero(table.kind == ChunkType.native)
            if len(native):
                yield layout.chunk(ObjectId12(table.chunk_ids[table.source[native[0]]].tobytes()))
                return


def _files(
    session: Session, key: ObjectId12, rows: NDArray[np.int64]
) -> Iterator[tuple[str, PageRequest]]:
    """Yield the files of references of a manifest, with a part that a reference needs."""
    for url, chunks in chosen_of(session, key, rows).items():
        chunk = chunks[0]
        end = chunk.offset + min(chunk.length, _BYTES)
        yield (
            url,
            PageRequest(url=url, begin=chunk.offset, end=end, checksum=chunk.file[1]),
        )


def _off_the_web(files: Iterable[str]) -> Iterator[WebProblem]:
    for url in files:
        if not _is_web(url):
            yield WebProblem(
                kind=WebProblemKind.location,
                url=url,
                what=f"references name {urlsplit(url).scheme} addresses, and a page reads http and"
                " https only",
                do="Build with --publish-as FROM=https://..., the address under which a web"
                " server shows the files.",
            )


def _together(found: Iterable[WebProblem]) -> tuple[WebProblem, ...]:
    """Return problems that differ only in the file of a server as one."""
    merged: dict[tuple[str, ...], WebProblem] = {}
    for each in found:
        server = urlsplit(each.url)
        key = (each.kind, server.scheme, server.netloc, each.what)
        known = merged.get(key)
        merged[key] = each if known is None else replace(known, urls=known.urls + 1)
    return tuple(sorted(merged.values(), key=lambda each: not each.stops))
