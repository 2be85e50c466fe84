"""Check the links of a built site: each leads to a file of it, and each anchor is there."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page links to, and what can be linked in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []  # what a browser fetches with the page
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the attributes that name places."""
        given = dict(attrs)
        if tag in ("script", "img") or given.get("rel") == "stylesheet":
            self.loaded += filter(None, (given.get("src"), given.get("href")))
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


def broken(site: Path) -> Iterator[str]:
    """Yield each link that leads nowhere, and what is loaded from elsewhere, with the page."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute: it is served for any path
            continue
        for link in page.loaded:
            if urlsplit(link).netloc:
                yield f"{path.relative_to(site)}: {link}: is loaded from another server"
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link}: there is no such page"
            elif (
                parts.fragment
                and target in pages
                and (unquote(parts.fragment) not in pages[target].anchors)
            ):
                yield f"{path.relative_to(site)}: {link}: the page has no such anchor"
