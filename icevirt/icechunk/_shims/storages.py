"""Storages as icechunk shows them, and the one on local disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from icevirt.icechunk._shims.shown import Shown
from icevirt.storage import local
from icevirt.storage.protocol import ObjectInfo

if TYPE_CHECKING:
    from icevirt.icechunk._shims.configuration import StorageSettings


class NamedStorage(Shown):
    """A storage of icevirt's with the names that icechunk has for one."""

    _home = "icechunk"
    _type: ClassVar[str]

    __repr__ = Shown.__repr__

    def _title(self) -> str:
        return "icechunk.Storage"

    def _show_fields(self) -> Mapping[str, Any]:
        url = self.url  # type: ignore[attr-defined] # of icevirt's class
        scheme, _, path = url.partition("://")
        bucket, _, prefix = path.partition("/")
        fields = {
            "memory": {},
            "file": {"path": unquote(path)},
            "http": {"url": url},
            "https": {"url": url},
        }.get(scheme, {"bucket": bucket, "prefix": prefix})
        return {"type": self._type.format(scheme=scheme), **fields}

    @property
    def is_bucket_root(self) -> bool:
        """Whether objects would lie at the root of a bucket."""
        return False

    def default_settings(self) -> StorageSettings:
        """Return icechunk's settings of such a storage, to change and put into a configuration."""
        from icevirt.icechunk._shims.configuration import StorageSettings

        return StorageSettings()

    def list_objects_metadata(
        self, settings: StorageSettings | None = None, prefix: str | None = None
    ) -> list[ObjectInfo]:
        """Return the objects below the root, or of a folder of it."""
        del settings
        found: list[ObjectInfo] = list(self.list(prefix or ""))  # type: ignore[attr-defined]
        return found

    def list_objects(
        self, settings: StorageSettings | None = None, prefix: str | None = None
    ) -> list[tuple[str, int]]:
        """Return path and size of the objects below the root, or of a folder of it."""
        return [(each.path, each.size) for each in self.list_objects_metadata(settings, prefix)]


class OnDisk(NamedStorage, local.LocalStorage):
    """A repository's root on local disk."""

    _type = "local filesystem"

    def default_settings(self) -> StorageSettings:
        """Return icechunk's settings of such a storage, to change and put into a configuration."""
        from icevirt.icechunk._shims import configuration

        return configuration.StorageSettings(
            unsafe_use_conditional_update=False,
            unsafe_use_metadata=False,
            concurrency=configuration.StorageConcurrencySettings(5, 4096),
            retries=configuration.StorageRetriesSettings(1, 0, 0),
        )


def local_filesystem_storage(path: str) -> NamedStorage:
    """Return the storage of a repository on local disk."""
    return name_storage(local.local_filesystem_storage(path), OnDisk)


def name_storage(storage: Any, *kinds: type[NamedStorage]) -> NamedStorage:
    """Return icevirt's storage as icechunk's, of one of these kinds."""
    for kind in kinds:
        if type(storage) is kind.__bases__[1]:
            storage.__class__ = kind
    found: NamedStorage = storage
    return found
