"""Say what names of files, and recipes that name them, become when the files moved. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from icevirt.api.dataset.records import KeptRecipe
from icevirt.api.recipe import each_moved, toml
from icevirt.connect.urls import as_local_path, file_url, is_url, local_path
from icevirt.objects.source_lists.globs import is_pattern
from icevirt.objects.source_lists.listing import directory_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Two prefixes: of files so far, and of the same files now."""

    old: str  # ends in a slash, as does `new`
    new: str
    paths: tuple[str, ...] = ()  # the old place as people spell it, without a slash at the end

    @classmethod
    def of(cls, old: str, new: str, given: str = "") -> Renaming:
        """Return the renaming of two URLs.

        Args:
            old: Prefix so far.
            new: Prefix now.
            given: The path of the old place as a person gave it, if it is one.
        """
        paths = [local_path(old)] if old.startswith("file://") else []
        if paths and given and not is_url(given):
            paths.append(as_local_path(given))
        return cls(old=old, new=new, paths=tuple({each.rstrip("/") for each in paths}))

    def url(self, url: str) -> str:
        """Return a URL; one below the old prefix below the new one."""
        return self.new + url.removeprefix(self.old) if url.startswith(self.old) else url

    def value(self, held: Any) -> Any:
        """Return a JSON value in which URLs are renamed."""
        if isinstance(held, str):
            return self.url(held)
        if isinstance(held, list | tuple):
            return [self.value(each) for each in held]
        if isinstance(held, Mapping):
            return {name: self.value(each) for name, each in held.items()}
        return held

    def text(self, given: str) -> str:
        """Return a path, pattern or URL of a recipe; one below the old place below the new one."""
        mark, bare = ("@", given[1:]) if given.startswith("@") else ("", given)
        if is_url(bare):
            slash = "" if bare.endswith("/") else "/"
            moved = self.url(bare + slash)
            return mark + (bare if moved == bare + slash else moved.removesuffix(slash))
        for path in self.paths:
            if bare == path or bare.startswith(f"{path}/"):
                new = local_path(self.new) if self.new.startswith("file://") else self.new
                return mark + new.rstrip("/") + bare.removeprefix(path)
        return given

    def recipe(self, kept: KeptRecipe) -> tuple[KeptRecipe, tuple[str, ...]]:
        """Return a recipe that names the new place, and what it cannot say."""
        document = tomllib.loads(kept.text)
        moved = each_moved(document, self.text)
        notes = []
        sources = [str(each) for each in _each(moved.get("sources"))]
        for each in [*sources]:
            if each.startswith("@"):
                notes.append(f"the list {each[1:]} is read as it is: let it name the new place")
            elif self._leaves(_place(each)) and is_pattern(each.partition("://")[2] or each):
                notes.append(
                    f"the pattern {each} does not reach the new place: name it with"
                    " icevirt update --recipe"
                )
            elif self._leaves(_place(each)):
                sources.append(self._spelled_new())
        if sources:
            moved["sources"] = sources if len(sources) > 1 else moved["sources"]
        return (kept if moved == document else KeptRecipe(toml(moved))), tuple(notes)

    def _leaves(self, place: str) -> bool:
        """Say whether files move out of a directory that holds more than these."""
        is_around = self.old.startswith(place) and place != self.old
        return is_around and not self.new.startswith(place)

    def _spelled_new(self) -> str:
        return local_path(self.new) if self.new.startswith("file://") else self.new


def all_names(urls: Iterable[str], moves: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return URLs with the names that the same files had before they were moved, and have since."""
    both = [*moves]
    ways = [Renaming(old=old, new=new) for old, new in (*both, *((b, a) for a, b in both))]
    found, left = set(urls), [*urls]
    while left:
        url = left.pop()
        more = {each.url(url) for each in ways} - found
        found |= more
        left += more
    return frozenset(found)


def _each(given: Any) -> list[Any]:
    return [given] if isinstance(given, str) else list(given or ())


def _place(source: str) -> str:
    """Return the directory of a source, as a URL that ends in a slash."""
    if is_url(source):
        return directory_of(source)
    return file_url(directory_of(source)).rstrip("/") + "/"
