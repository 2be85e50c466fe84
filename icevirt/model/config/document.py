"""Hold the configuration document, with typed views of the parts that icevirt uses.

The document is kept as it was read, so keys of newer clients survive a read-modify-write. Absent
keys and nulls mean the default. Spec: `Repo.config`; spellings are the official client's.

Where the official client cannot write conditionally, on a local disk, it persists the settings for
that together with the first container. In a copy of such a repository on an object store it obeys
them: it replaces `repo` unconditionally, and the commits of others are gone. So that is refused.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from icevirt.errors import (
    ConfigurationError,
    FormatError,
    IcevirtError,
    StorageError,
    check,
    refuse_other,
)
from icevirt.redaction import redact

if TYPE_CHECKING:
    from icevirt.model.config.containers import VirtualChunkContainer
    from icevirt.model.config.sections import (
        CachingConfig,
        CompressionConfig,
        ManifestConfig,
        RepoUpdateRetryConfig,
        StorageSettings,
    )


if TYPE_CHECKING:
    from typing import Protocol

    from icevirt.model.json import JSONObject

    class HasDocument(Protocol):
        """What descriptors of settings stand in."""

        document: dict[str, Any]

    class Sectional(Protocol):
        """A section, however it is made."""

        def onto(self, document: Mapping[str, Any]) -> JSONObject:
            """Return the persisted form, with all other keys as in ``document``."""
            ...

        @classmethod
        def from_document(cls, document: Mapping[str, Any]) -> Self:
            """Read the persisted form."""
            ...


_WHOLE = (
    ("virtual_chunk_containers",),
    ("manifest", "preload"),
    ("manifest", "splitting"),
)  # replaced as a whole, as the official client does
_MOST = (1 << 64) - 1


def merge_documents(
    persisted: Mapping[str, Any], given: Mapping[str, Any], at: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the persisted document with what ``given`` sets in its place."""
    result = dict(persisted)
    for key, value in given.items():
        here = (*at, key)
        old = persisted.get(key)
        if value is None:
            result.setdefault(key, None)
        elif isinstance(value, Mapping) and isinstance(old, Mapping) and here not in _WHOLE:
            result[key] = merge_documents(old, value, here)
        else:
            result[key] = value
    return result


def unusable(setting: str, reason: str) -> FormatError:
    """Return the error of a persisted setting that is not what the format says."""
    return ConfigurationError(
        "the configuration of the repository holds a setting that is not valid",
        do="If a newer client wrote it, upgrade icevirt. Otherwise set it again with the client"
        " that wrote it; in a V1 repository, edit `config.yaml`.",
        setting=setting,
        reason=reason[:500],
    )


class Number:
    """A number of the configuration; assigning None brings its default back."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, config: None, owner: type) -> Self: ...
    @overload
    def __get__(self, config: HasDocument, owner: type) -> int | None: ...
    def __get__(self, config: HasDocument | None, owner: type) -> Self | int | None:
        if config is None:
            return self
        found = config.document.get(self._name)
        if found is not None and (type(found) is not int or not 0 <= found <= _MOST):
            raise unusable(self._name, "it is not a 64-bit integer")
        return found

    def __set__(self, config: HasDocument, value: int | None) -> None:
        refuse_other(f"RepositoryConfig.{self._name}", value, int)
        if value is not None or self._name in config.document:
            config.document[self._name] = value


class OptionalSection[T: Sectional]:
    """A section of the configuration; None where it is absent.

    What is assigned replaces the settings that it names, and leaves others in the document.
    """

    def __init__(self, kind: str, doc: str) -> None:
        """Take the class of the section by name: most repositories set none, and import none."""
        self._name_of_kind = kind
        self.__doc__ = doc

    @property
    def kind(self) -> type[T]:
        """The class of the section."""
        module, _, name = self._name_of_kind.rpartition(".")
        found: type[T] = getattr(importlib.import_module(module), name)
        return found

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, config: None, owner: type) -> Self: ...
    @overload
    def __get__(self, config: HasDocument, owner: type) -> T | None: ...
    def __get__(self, config: HasDocument | None, owner: type) -> Self | T | None:
        if config is None:
            return self
        found = config.document.get(self._name)
        try:
            return None if found is None else self.kind.from_document(found)
        except IcevirtError:
            raise
        except Exception as error:
            raise unusable(self._name, f"{type(error).__name__}: {error}") from error

    def __set__(self, config: HasDocument, value: T | None) -> None:
        if value is not None:
            refuse_other(f"RepositoryConfig.{self._name}", value, self.kind)
        before = config.document.get(self._name)
        if value is not None or before is not None:
            config.document[self._name] = (value or self.kind()).onto(before or {})


_SETTING = "unsafe_use_conditional_update"
_ONE_MACHINE = ("file:", "memory:")  # no place for the official client to write at the same time


def rebase_documents(
    base: Mapping[str, Any], mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``theirs`` with the changes that led from ``base`` to ``mine``.

    Two writers that each add a container both keep theirs; where both changed one value, mine wins.
    """
    result = dict(theirs)
    for key in sorted(base.keys() | mine.keys()):
        before, after, other = base.get(key), mine.get(key), theirs.get(key)
        if before == after:
            continue
        if isinstance(after, Mapping) and isinstance(other, Mapping):
            result[key] = rebase_documents(
                before if isinstance(before, Mapping) else {}, after, other
            )
        elif key in mine:
            result[key] = after
        else:
            result.pop(key, None)
    return result


def persistable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is written: never the defaults of a kind of storage, which would not travel."""
    return {**document, "storage": document.get("storage")}


def refuse_unconditional(config: Mapping[str, Any] | None, url: str) -> None:
    """Check a configuration with which the repository at ``url`` would be published.

    Raises:
        StorageError: Other writers to this object store would not write conditionally.
    """
    settings = (config or {}).get("storage")
    if url.startswith(_ONE_MACHINE) or not isinstance(settings, Mapping):
        return
    if settings.get(_SETTING) is False:
        raise StorageError(
            "the configuration of this repository allows unconditional writes, as on a local "
            "disk: commits would be lost",
            do="Stop other writers, then run `repo.config.storage = None; repo.save_config()`.",
            repo=url,
            setting=f"storage.{_SETTING}",
        )


_SECTIONS = "icevirt.model.config.sections."

MAX_LEVEL = 22
"""The highest level of zstd; the official client takes higher ones for it."""


class SplitRule(NamedTuple):
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
        return f"<icevirt.RepositoryConfig {redact(present)}>"

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
        return self.from_document(copy.deepcopy(merge_documents(self.document, other.document)))

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
        check("the container", cont, VirtualChunkContainer, do=how)
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
            return all(
                isinstance(size, Mapping)
                and "condition" in size
                and isinstance(size.get("num_chunks"), int)
                for size in sizes
            )
        case _:
            return False
