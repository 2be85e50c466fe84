"""Define what a page in a browser would miss on the servers of a repository, for text and JSON."""

from __future__ import annotations

from enum import StrEnum

from icevirt.deferred_dataclass import dataclass


class WebProblemKind(StrEnum):
    """What a page in a browser would miss."""

    unreachable = "unreachable"  # the server does not answer, or with an error
    location = "location"  # no address of the web
    redirect = "redirect"  # the client of the page follows none
    ranges = "ranges"  # the server does not send the part that was requested
    validator = "validator"  # nothing tells whether the file is the one that was scanned
    changed = "changed"  # it is another one
    cors = "cors"  # the server does not share with the page's origin
    exposed = "exposed"  # the page may not see a header that its client needs
    preflight = "preflight"  # the server refuses a header that browsers ask about first
    insecure = "insecure"  # http, where a page under https may not read it


@dataclass(frozen=True, slots=True, kw_only=True)
class WebProblem:
    """One thing that a server or a repository lacks; ``urls`` counts the addresses that lack it."""

    kind: WebProblemKind
    url: str  # the first one
    urls: int = 1
    what: str
    do: str
    stops: bool = True  # whether a page fails; otherwise some browsers or clients do


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAccessReport:
    """The outcome of ``icevirt verify --as-browser``."""

    repo: str  # URL
    snapshot_id: str
    origin: str  # of the page
    objects: int  # of the repository that were requested
    files: int  # that were requested, of a sample of the references
    seed: int  # of the sample
    problems: tuple[WebProblem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether a page at the origin can read what was requested."""
        return not any(each.stops for each in self.problems)
