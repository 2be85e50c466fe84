"""The repository configuration: the persisted document and typed views of the parts icevirt uses.

The document is kept as it was read, so that keys of newer clients survive a read-modify-write.
Absent keys and nulls mean the default. Spec: `Repo.config`; spellings are the official client's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from icevirt.errors import InvalidInputError
from icevirt.model.json import JSONObject
from icevirt.model.manifest_config import ManifestConfig

_SCHEMES = {
    "file": ("local_file_system",),
    "s3": ("s3", "s3_compatible", "tigris"),
    "tigris": ("tigris",),
    "gs": ("gcs",),
    "gcs": ("gcs",),
    "az": ("azure",),
    "azure": ("azure",),
    "abfs": ("azure",),
    "http": ("http",),
    "https": ("http",),
}


@dataclass(frozen=True, slots=True)
class ObjectStoreConfig:
    """How the objects of a container are reached: a kind of store and its options, no secrets."""

    kind: str  # "local_file_system", "s3", "s3_compatible", "tigris", "gcs", "azure", "http"
    options: Any  # the path for a local file system, a mapping of options otherwise

    def to_document(self) -> JSONObject:
        """Return the persisted form."""
        return {self.kind: self.options}

    @classmethod
    def from_document(cls, document: object) -> ObjectStoreConfig:
        """Read the persisted form. Raises ``InvalidInputError``."""
        if isinstance(document, str):
            return cls(document, {})
        if isinstance(document, Mapping) and len(document) == 1:
            ((kind, options),) = document.items()
            return cls(kind, options)
        raise InvalidInputError("not an object store config", found=document)


def local_filesystem_store(path: str) -> ObjectStoreConfig:
    """Return the config of a container on local disk; ``path`` is the directory of its prefix."""
    return ObjectStoreConfig("local_file_system", path)


@dataclass(frozen=True, slots=True)
class VirtualChunkContainer:
    """A URL prefix below which virtual chunks may lie, and how to reach it."""

    url_prefix: str
    store: ObjectStoreConfig
    name: str | None = None

    def __post_init__(self) -> None:
        scheme, separator, rest = self.url_prefix.partition("://")
        if not separator or not rest or not self.url_prefix.endswith("/"):
            raise InvalidInputError(
                "a container's url_prefix is a URL that ends in '/'",
                do="Write it like 'file:///data/archive/' or 's3://bucket/prefix/'.",
                url_prefix=self.url_prefix,
            )
        if self.store.kind not in _SCHEMES.get(scheme, ()):
            raise InvalidInputError(
                "this kind of store cannot serve this URL scheme",
                do=f"For {scheme}:// use one of {_SCHEMES.get(scheme, ())}.",
                url_prefix=self.url_prefix,
                store=self.store.kind,
            )
        if self.name is not None and (not self.name or "/" in self.name):
            raise InvalidInputError(
                "a container's name is empty or has a '/'", do="Choose another.", name=self.name
            )

    def to_document(self) -> JSONObject:
        """Return the persisted form."""
        return {
            "name": self.name,
            "url_prefix": self.url_prefix,
            "store": self.store.to_document(),
        }


@dataclass(frozen=True, slots=True)
class SplitRule:
    """One entry of ``manifest.splitting``: which arrays, and how many chunks per manifest and axis.

    ``path_regex`` None means any array. Regexes are unanchored searches in Rust syntax, over the
    absolute path. ``num_chunks`` holds (axis, chunks) pairs.
    """

    path_regex: str | None
    num_chunks: tuple[tuple[int, int], ...]

    def to_document(self) -> list[Any]:
        """Return the persisted form."""
        condition: Any = (
            "any_array" if self.path_regex is None else {"path_matches": {"regex": self.path_regex}}
        )
        return [
            condition,
            [{"condition": {"Axis": axis}, "num_chunks": n} for axis, n in self.num_chunks],
        ]


@dataclass(slots=True)
class RepositoryConfig:
    """Configuration of a repository; ``document`` is what is persisted."""

    document: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def default(cls) -> RepositoryConfig:
        """Return the configuration in which everything has its default."""
        return cls()

    @property
    def inline_chunk_threshold_bytes(self) -> int:
        """Encoded chunks of up to this many bytes are stored inside the manifest. Default 512."""
        return _number(self.document, ("inline_chunk_threshold_bytes",), 512)

    @property
    def compression_level(self) -> int:
        """The zstd level of metadata files. Default 3."""
        return _number(self.document, ("compression", "level"), 3)

    @property
    def num_updates_per_repo_info_file(self) -> int:
        """Ops-log entries kept in ``repo`` before it overflows into its backups. Default 1000."""
        return _number(self.document, ("num_updates_per_repo_info_file",), 1000)

    @property
    def manifest(self) -> ManifestConfig | None:
        """How manifests are split and compressed; None: by default. Raises ``InvalidInputError``.

        Setting it changes these settings only: others under ``manifest`` stay in the document.
        """
        document = self.document.get("manifest")
        return None if document is None else ManifestConfig.from_document(document)

    @manifest.setter
    def manifest(self, value: ManifestConfig | None) -> None:
        document = self.document.get("manifest")
        if value is not None or document is not None:
            self.document["manifest"] = (value or ManifestConfig()).onto(document or {})

    @property
    def splitting_document(self) -> list[Any] | None:
        """The persisted ``manifest.splitting.split_sizes``, or None."""
        splitting = (self.document.get("manifest") or {}).get("splitting") or {}
        sizes: list[Any] | None = splitting.get("split_sizes")
        return sizes

    @property
    def virtual_chunk_containers(self) -> dict[str, VirtualChunkContainer]:
        """Containers by url_prefix; entries that no reader could use are left out."""
        found = {}
        for key, entry in (self.document.get("virtual_chunk_containers") or {}).items():
            prefix = str(entry.get("url_prefix") or key)
            prefix = prefix if prefix.endswith("/") else prefix + "/"
            try:
                store = ObjectStoreConfig.from_document(entry.get("store"))
                found[prefix] = VirtualChunkContainer(prefix, store, entry.get("name"))
            except InvalidInputError:
                continue
        return found

    def get_virtual_chunk_container(self, name: str) -> VirtualChunkContainer | None:
        """Return the container of this name or url_prefix."""
        containers = self.virtual_chunk_containers
        named = [c for c in containers.values() if c.name == name]
        return named[0] if named else containers.get(name)

    def set_virtual_chunk_container(self, cont: VirtualChunkContainer) -> None:
        """Add a container, replacing one of the same prefix and one of the same name."""
        containers = dict(self.document.get("virtual_chunk_containers") or {})
        if cont.name is not None:
            containers = {k: v for k, v in containers.items() if v.get("name") != cont.name}
        containers[cont.url_prefix] = cont.to_document()
        self.document["virtual_chunk_containers"] = containers

    def clear_virtual_chunk_containers(self) -> None:
        """Remove every container."""
        self.document["virtual_chunk_containers"] = {}

    def add_split_rules(self, rules: Iterable[SplitRule]) -> None:
        """Put rules in front of the persisted ones; a rule of the same condition is replaced."""
        new = [rule.to_document() for rule in rules]
        conditions = [entry[0] for entry in new]
        kept = [entry for entry in self.splitting_document or [] if entry[0] not in conditions]
        manifest = dict(self.document.get("manifest") or {})
        manifest["splitting"] = {"split_sizes": new + kept}
        self.document["manifest"] = manifest


def _number(document: Mapping[str, Any], keys: tuple[str, ...], default: int) -> int:
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return default if value is None else int(value)
