"""Provide mappings that fetch values on first use and record changes as steps.

Repositories of the V1 format keep each branch, tag and snapshot in an object of its own. A commit
should read the few that it needs, not all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping


class Lazy[K, V](Mapping[K, V]):
    """A mapping over functions; what `plus` and `minus` changed lies on top.

    Args:
        fetch: Returns the value of a key, None where there is none. Called each time.
        keys: Returns the keys, each once.
        changed: Values in the place of those that are fetched; None says that there is none.
    """

    def __init__(
        self,
        fetch: Callable[[K], V | None],
        keys: Callable[[], Iterable[K]],
        changed: Mapping[K, V | None] | None = None,
    ) -> None:
        self._fetch = fetch
        self._keys = keys
        self._changed = dict(changed or {})

    def __getitem__(self, key: K) -> V:
        found = self._changed[key] if key in self._changed else self._fetch(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._keys() if key not in self._changed)
        yield from (key for key, value in self._changed.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def with_changed(self, key: K, value: V | None) -> Lazy[K, V]:
        """Return the mapping with another value of a key; None removes it."""
        return Lazy(self._fetch, self._keys, {**self._changed, key: value})


def plus[K, V](mapping: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """Return a mapping with one more key, or another value of it; nothing is fetched."""
    if isinstance(mapping, Lazy):
        return mapping.with_changed(key, value)
    return {**mapping, key: value}


def minus[K, V](mapping: Mapping[K, V], key: K) -> Mapping[K, V]:
    """Return a mapping without a key; nothing is fetched."""
    if isinstance(mapping, Lazy):
        return mapping.with_changed(key, None)
    return {name: value for name, value in mapping.items() if name != key}
