"""Define the sections of the persisted configuration, and convert them to values and back.

A section knows its settings; other keys in the document, from a newer client, stay there. None is
the default, which is also what an absent key means. Names, order and defaults are icechunk's:
icevirt persists all settings for every client, and itself follows ``CompressionConfig.level``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Protocol, Self, get_args, get_type_hints, overload

from icevirt.deferred_dataclass import dataclass
from icevirt.errors import FormatError, IcevirtError, InvalidInputError
from icevirt.model.json import JSONObject

_WHOLE = (
    ("virtual_chunk_containers",),
    ("manifest", "preload"),
    ("manifest", "splitting"),
)  # replaced as a whole, as the official client does
_MOST = (1 << 64) - 1


class Word(Enum):
    """A choice that is persisted as a word."""


@dataclass(frozen=True, slots=True)
class Section:
    """Settings that belong together; each is a bool, int, str, `Word` or section, or None."""

    def __post_init__(self) -> None:
        for name, kind in _kinds(type(self)).items():
            refuse_other(f"{type(self).__name__}.{name}", getattr(self, name), kind)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the persisted form. Raises ``InvalidInputError``."""
        if not isinstance(document, Mapping):
            raise InvalidInputError(
                f"not the persisted form of a {cls.__name__}",
                do="Correct the repository's config, or upgrade icevirt.",
                found=document,
            )
        return cls(**{n: _read(kind, document.get(n)) for n, kind in _kinds(cls).items()})

    def onto(self, document: Mapping[str, Any]) -> JSONObject:
        """Return the persisted form, with all other keys as in ``document``."""
        written = {n: _written(getattr(self, n), document.get(n)) for n in _kinds(type(self))}
        return {**document, **written}


def _kinds(section: type[Section]) -> dict[str, Any]:
    """Return what each setting is when it is not None, in their order."""
    hints = get_type_hints(section)
    return {
        each.name: next(kind for kind in get_args(hints[each.name]) if kind is not type(None))
        for each in fields(section)
    }


def refuse_other(name: str, value: object, kind: type[Any]) -> None:
    """Check that a setting is of its kind, or None.

    Raises:
        InvalidInputError: It is of another, or a negative number.
    """
    fits = value is None or isinstance(value, kind)
    if isinstance(value, bool):  # which is an int too
        fits = kind is bool
    elif isinstance(value, int):
        fits = fits and value >= 0
    if fits:
        return
    wanted = "a non-negative integer" if kind is int else f"a {kind.__name__}"
    raise InvalidInputError(
        f"{name} has the wrong type", do=f"Pass {wanted}, or None for the default.", found=value
    )


def _read(kind: type[Any], value: Any) -> Any:
    if value is None:
        return None
    if hasattr(kind, "from_document"):
        return kind.from_document(value)
    return kind(value) if issubclass(kind, Word) else value


def _written(value: Any, before: Any) -> Any:
    if isinstance(value, Word):
        return value.value
    if not hasattr(value, "onto"):
        return value
    return value.onto(before if isinstance(before, Mapping) else {})


def merged(
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
            result[key] = merged(old, value, here)
        else:
            result[key] = value
    return result


def unusable(setting: str, reason: str) -> FormatError:
    """Return the error of a persisted setting that is not what the format says."""
    return FormatError(
        "the configuration of the repository holds a setting that is not valid",
        do="If a newer client wrote it, upgrade icevirt. Otherwise set it again with the client"
        " that wrote it; in a V1 repository, edit `config.yaml`.",
        setting=setting,
        reason=reason[:500],
    )


class HasDocument(Protocol):
    """What descriptors of settings stand in."""

    document: dict[str, Any]


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


class Sectional(Protocol):
    """A section, however it is made."""

    def onto(self, document: Mapping[str, Any]) -> JSONObject:
        """Return the persisted form, with all other keys as in ``document``."""
        ...

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the persisted form."""
        ...


class OptionalSection[T: Sectional]:
    """A section of the configuration; None where it is absent.

    What is assigned replaces the settings that it names, and leaves others in the document.
    """

    def __init__(self, kind: type[T], doc: str) -> None:
        self._kind = kind
        self.__doc__ = doc

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
            return None if found is None else self._kind.from_document(found)
        except IcevirtError:
            raise
        except Exception as error:
            raise unusable(self._name, f"{type(error).__name__}: {error}") from error

    def __set__(self, config: HasDocument, value: T | None) -> None:
        if value is not None:
            refuse_other(f"RepositoryConfig.{self._name}", value, self._kind)
        before = config.document.get(self._name)
        if value is not None or before is not None:
            config.document[self._name] = (value or self._kind()).onto(before or {})


class CompressionAlgorithm(Word):
    """How metadata files are compressed."""

    Zstd = "zstd"

    @staticmethod
    def default() -> CompressionAlgorithm:
        """Return the format's algorithm."""
        return CompressionAlgorithm.Zstd


@dataclass(frozen=True, slots=True)
class CompressionConfig(Section):
    """How metadata files are compressed."""

    algorithm: CompressionAlgorithm | None = None
    level: int | None = None  # 3

    @staticmethod
    def default() -> CompressionConfig:
        """Return the section with all defaults."""
        return CompressionConfig()


@dataclass(frozen=True, slots=True)
class CachingConfig(Section):
    """What icechunk clients cache in memory. icevirt's cache is bounded in bytes instead."""

    num_snapshot_nodes: int | None = None
    num_chunk_refs: int | None = None
    num_transaction_changes: int | None = None
    num_bytes_attributes: int | None = None
    num_bytes_chunks: int | None = None

    @staticmethod
    def default() -> CachingConfig:
        """Return the section with all defaults."""
        return CachingConfig()


@dataclass(frozen=True, slots=True)
class StorageConcurrencySettings(Section):
    """The number and size of parallel requests for one object."""

    max_concurrent_requests_for_object: int | None = None
    ideal_concurrent_request_size: int | None = None


@dataclass(frozen=True, slots=True)
class StorageRetriesSettings(Section):
    """How often a request is retried, and the pauses between retries."""

    max_tries: int | None = None
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StorageTimeoutSettings(Section):
    """How long a request may take."""

    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    operation_timeout_ms: int | None = None
    operation_attempt_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StorageSettings(Section):
    """How clients talk to the storage of the repository."""

    concurrency: StorageConcurrencySettings | None = None
    retries: StorageRetriesSettings | None = None
    unsafe_use_conditional_create: bool | None = None
    unsafe_use_conditional_update: bool | None = None
    unsafe_use_metadata: bool | None = None
    storage_class: str | None = None
    metadata_storage_class: str | None = None
    chunks_storage_class: str | None = None
    minimum_size_for_multipart_upload: int | None = None
    timeouts: StorageTimeoutSettings | None = None


@dataclass(frozen=True, slots=True)
class RepoUpdateRetryConfig(Section):
    """How often icechunk clients retry replacing the repo info when other writers are faster."""

    default: StorageRetriesSettings | None = None
