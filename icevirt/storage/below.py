"""Show the objects under a prefix as a storage of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from icevirt.deferred_dataclass import dataclass
from icevirt.storage.protocol import NOTHING, LostRace, ObjectInfo, Storage, Version, Written


@dataclass(frozen=True, slots=True)
class Below:
    """The objects of ``storage`` under ``prefix``, which ends in ``/``."""

    storage: Storage
    prefix: str

    @property
    def url(self) -> str:
        """The prefix as a URL, without secrets."""
        return f"{self.storage.url.rstrip('/')}/{self.prefix.rstrip('/')}"

    def exists(self) -> bool:
        """Say whether there is anything under the prefix."""
        return next(self.list(), None) is not None

    def get(self, path: str) -> bytes:
        """Return the whole object. Raises ``ObjectNotFoundError``."""
        return self.storage.get(self.prefix + path)

    def get_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; see `Storage.get_range`."""
        return self.storage.get_range(self.prefix + path, offset=offset, length=length)

    def get_versioned(self, path: str) -> tuple[bytes, Version]:
        """Return the object and its version. Raises ``ObjectNotFoundError``."""
        return self.storage.get_versioned(self.prefix + path)

    def put(self, path: str, body: bytes) -> None:
        """Write an immutable object; see `Storage.put`."""
        self.storage.put(self.prefix + path, body)

    def put_if(
        self,
        path: str,
        body: bytes,
        *,
        was: Version | None,
        after: Mapping[str, bytes] = NOTHING,
    ) -> Written | LostRace:
        """Write if unchanged; see `Storage.put_if`."""
        before = {self.prefix + each: content for each, content in after.items()}
        return self.storage.put_if(self.prefix + path, body, was=was, after=before)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects under the prefix, with paths relative to it."""
        behind = {"after": self.prefix + after} if after else {}
        for info in self.storage.list((self.prefix + prefix).rstrip("/"), **behind):
            yield replace(info, path=info.path.removeprefix(self.prefix))

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""
        self.storage.delete(self.prefix + path)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove objects; see `Storage.delete_many`."""
        self.storage.delete_many([self.prefix + path for path in paths])

    def delete_all(self) -> None:
        """Remove everything under the prefix, and directories where the storage has them."""
        self.storage.delete_below(self.prefix.rstrip("/"))

    def delete_below(self, prefix: str) -> None:
        """Remove every object under a prefix; see `Storage.delete_below`."""
        self.storage.delete_below(self.prefix + prefix)

    def below(self, prefix: str) -> Below:
        """Return a part of this part."""
        return Below(self.storage, self.prefix + prefix)
