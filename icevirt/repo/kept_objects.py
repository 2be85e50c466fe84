"""Keep what this process wrote or read last of a repository, so that it is not read again.

Only objects that never change are kept, under names that cover their content or are drawn at
random: what `repo` leads to by such a name is what it was. So a process that appends file after
file reads nothing but `repo`.
"""

from __future__ import annotations

from functools import lru_cache

from icevirt.repo.made_here import identify
from icevirt.repo.manifest_lookup import Cache
from icevirt.storage.protocol import Below, Storage

_LIMIT = 32 << 20  # bytes of one repository
_LARGEST = _LIMIT // 8
_REPOSITORIES = 8


def cache_of(storage: Storage) -> Cache:
    """Return what is kept of a storage's objects, in this process.

    A bucket of the same name on another server has others.
    """
    if isinstance(storage, Below):
        return _cache(f"{identify(storage.storage)} {storage.prefix}")
    return _cache(identify(storage))


@lru_cache(_REPOSITORIES)
def _cache(_whose: str) -> Cache:
    return Cache(_LIMIT)


class KeptObjects(Below):
    """Immutable objects below a prefix, of which small ones are kept that were read or written."""

    def get(self, path: str) -> bytes:
        """Return the whole object. Raises ``ObjectNotFoundError``."""
        found: bytes | None = cache_of(self).find(path)
        return self._keep(path, super().get(path)) if found is None else found

    def get_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; see `Storage.get_range`."""
        whole: bytes | None = cache_of(self).find(path)
        if whole is not None and offset + length <= len(whole):
            return whole[offset : offset + length]
        key = (path, offset, length)
        found: bytes | None = cache_of(self).find(key)
        if found is None:
            found = self._keep(key, super().get_range(path, offset=offset, length=length))
        return found

    def put(self, path: str, body: bytes) -> None:
        """Write an object; see `Storage.put`."""
        super().put(path, body)
        self._keep(path, body)

    def _keep(self, key: object, raw: bytes) -> bytes:
        if len(raw) <= _LARGEST:
            cache_of(self).put(key, raw, len(raw))
        return raw


def keeping(storage: Storage) -> Storage:
    """Return a folder whose objects never change as one that keeps those that it gave or took."""
    return KeptObjects(storage.storage, storage.prefix) if isinstance(storage, Below) else storage
