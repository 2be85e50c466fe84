"""Hold the configuration document, with typed views of the parts that icevirt uses.

The document is kept as it was read, so keys of newer clients survive a read-modify-write. Absent
keys and nulls mean the default. Spec: `Repo.config`; spellings are the official client's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icevirt.model.arguments import checked
from icevirt.model.config.settings import Number, OptionalSection, merged, unusable
from icevirt.redaction import redacted

if TYPE_CHECKING:
    from icevirt.model.config.containers import VirtualChunkContainer
    from icevirt.model.config.sections import (
        CachingConfig,
        CompressionConfig,
        ManifestConfig,
        RepoUpdateRetryConfig,
        StorageSettings,
    )

_SECTIONS = "icevirt.model.config.sections."

MAX_LEVEL = 22
"""The highest level of zstd; the official client takes higher ones for it."""


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


class RepositoryConfig:
    """Configuration of a repository; None is the default of a setting.

    ``document`` is the persisted form, with the settings of clients of any version.
    """

    num_updates_per_repo_info_file = Number("Number of ops-log entries in ``repo``: 1000.")
    get_partial_values_concurrency = Number("Kept for icechunk clients.")
    max_concurrent_requests = Number("Kept for icechunk clients.")
    max_concurrent_decodes = Number("Kept for icechunk clients.")
    inline_chunk_threshold_bytes = Number(
        "Chunks up to this many bytes are stored in manifests: 512."
    )
    compression: OptionalSection[CompressionConfig] = OptionalSection(
        _SECTIONS + "CompressionConfig", "How metadata files are compressed."
    )
    caching: OptionalSection[CachingConfig] = OptionalSection(
        _SECTIONS + "CachingConfig", "What icechunk clients cache in memory."
    )
    storage: OptionalSection[StorageSettings] = OptionalSection(
        _SECTIONS + "StorageSettings", "How clients talk to the storage."
    )
    repo_update_retries: OptionalSection[RepoUpdateRetryConfig] = OptionalSection(
        _SECTIONS + "RepoUpdateRetryConfig", "How often clients retry an update of the repo info."
    )
    manifest: OptionalSection[ManifestConfig] = OptionalSection(
        "icevirt.model.config.sections.ManifestConfig",
        "How manifests are split, compressed and fetched.",
    )

    def __init__(  # noqa: PLR0917 - icechunk's parameters
        self,
        inline_chunk_threshold_bytes: int | None = None,
        get_partial_values_concurrency: int | None = None,
        compression: CompressionConfig | None = None,
        max_concurrent_requests: int | None = None,
        caching: CachingConfig | None = None,
        storage: StorageSettings | None = None,
        virtual_chunk_containers: Mapping[str, VirtualChunkContainer] | None = None,
        manifest: ManifestConfig | None = None,
        repo_update_retries: RepoUpdateRetryConfig | None = None,
        num_updates_per_repo_info_file: int | None = None,
        max_concurrent_decodes: int | None = None,
    ) -> None:
        self.document: dict[str, Any] = {}
        self.inline_chunk_threshold_bytes = inline_chunk_threshold_bytes
        self.get_partial_values_concurrency = get_partial_values_concurrency
        self.compression = compression
        self.max_concurrent_requests = max_concurrent_requests
        self.caching = caching
        self.storage = storage
        self.manifest = manifest
        self.repo_update_retries = repo_update_retries
        self.num_updates_per_repo_info_file = num_updates_per_repo_info_file
        self.max_concurrent_decodes = max_concurrent_decodes
        for container in (virtual_chunk_containers or {}).values():
            self.set_virtual_chunk_container(container)

    def __repr__(self) -> str:
        present = {name: value for name, value in self.document.items() if value is not None}
        return f"<icevirt.RepositoryConfig {redacted(present)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RepositoryConfig) and self.document == other.document

    def __hash__(self) -> int:
        raise TypeError("a configuration is mutable, so it has no hash")

    @classmethod
    def default(cls) -> RepositoryConfig:
        """Return the configuration with all defaults."""
        return cls()

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> RepositoryConfig:
        """Wrap a persisted document, without copying it."""
        config = cls.__new__(cls)
        config.document = document if isinstance(document, dict) else dict(document or {})
        return config

    def merge(self, other: RepositoryConfig) -> RepositoryConfig:
        """Return a new configuration: this one, overridden by the settings of ``other``."""
        return self.from_document(copy.deepcopy(merged(self.document, other.document)))

    @property
    def inline_threshold(self) -> int:
        """The effective value of `inline_chunk_threshold_bytes`."""
        found = self.inline_chunk_threshold_bytes
        return 512 if found is None else found

    @property
    def compression_level(self) -> int:
        """The zstd level of metadata files."""
        found = self.compression
        return 3 if found is None or found.level is None else min(found.level, MAX_LEVEL)

    @property
    def ops_log_limit(self) -> int:
        """The effective value of `num_updates_per_repo_info_file`."""
        found = self.num_updates_per_repo_info_file
        return 1000 if found is None else found

    @property
    def splitting_document(self) -> list[Any] | None:
        """The persisted ``manifest.splitting.split_sizes``, or None."""
        manifest = self.document.get("manifest") or {}
        splitting = manifest.get("splitting") or {} if isinstance(manifest, Mapping) else manifest
        sizes = splitting.get("split_sizes") if isinstance(splitting, Mapping) else splitting
        if sizes is not None and not (isinstance(sizes, list) and all(map(_is_rule, sizes))):
            raise unusable("manifest.splitting", "it is not a list of rules")
        return sizes

    @property
    def virtual_chunk_containers(self) -> dict[str, VirtualChunkContainer]:
        """Containers by url_prefix; entries that no reader can use are left out."""
        entries = self.document.get("virtual_chunk_containers") or {}
        if not isinstance(entries, Mapping):
            raise unusable("virtual_chunk_containers", "it is not a mapping")
        if not entries:
            return {}
        from icevirt.model.config.containers import containers_of

        return containers_of(entries)

    def get_virtual_chunk_container(self, name: str) -> VirtualChunkContainer | None:
        """Return the container of this name or url_prefix."""
        containers = self.virtual_chunk_containers
        named = [c for c in containers.values() if c.name == name]
        return named[0] if named else containers.get(name)

    def set_virtual_chunk_container(self, cont: VirtualChunkContainer) -> None:
        """Add a container, replacing one of the same prefix and one of the same name.

        Raises:
            InvalidInputError: Not a `VirtualChunkContainer`.
        """
        from icevirt.model.config.containers import VirtualChunkContainer

        how = "Pass VirtualChunkContainer(url_prefix, store)."
        checked("the container", cont, VirtualChunkContainer, do=how)
        containers = dict(self.document.get("virtual_chunk_containers") or {})
        if cont.name is not None:
            containers = {k: v for k, v in containers.items() if v.get("name") != cont.name}
        containers[cont.url_prefix] = cont.to_document()
        self.document["virtual_chunk_containers"] = containers

    def clear_virtual_chunk_containers(self) -> None:
        """Remove every container."""
        self.document["virtual_chunk_containers"] = {}

    def add_split_rules(self, rules: Iterable[SplitRule]) -> None:
        """Put rules before the persisted ones, replacing rules with the same condition."""
        new = [rule.to_document() for rule in rules]
        conditions = [entry[0] for entry in new]
        kept = [entry for entry in self.splitting_document or [] if entry[0] not in conditions]
        manifest = dict(self.document.get("manifest") or {})
        manifest["splitting"] = {"split_sizes": new + kept}
        self.document["manifest"] = manifest


def _is_rule(entry: object) -> bool:
    """Say whether an entry of ``split_sizes`` is a condition, and numbers of chunks for axes."""
    match entry:
        case [_, [*sizes]]:
            return all(_is_size(size) for size in sizes)
        case _:
            return False


def _is_size(entry: object) -> bool:
    match entry:
        case {"condition": _, "num_chunks": int()}:
            return True
        case _:
            return False
