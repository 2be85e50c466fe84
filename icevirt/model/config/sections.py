"""Define the sections of the persisted configuration, and convert them to values and back.

A section knows its settings; other keys in the document, from a newer client, stay there. None is
the default, which is also what an absent key means. Names, order and defaults are icechunk's:
icevirt persists all settings for every client, and itself follows ``CompressionConfig.level``
and how manifests are split and compressed. It persists the settings of preloading for other
clients, but fetches manifests when it needs them. Spec: `Repo.config`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar, Self, get_args, get_type_hints
from typing import Any as Anything

from icevirt.errors import InvalidInputError, refuse_other
from icevirt.model.json import JSONObject


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
        written = {n: _write(getattr(self, n), document.get(n)) for n in _kinds(type(self))}
        return {**document, **written}


def _kinds(section: type[Section]) -> dict[str, Any]:
    """Return what each setting is when it is not None, in their order."""
    hints = get_type_hints(section)
    return {
        each.name: next(kind for kind in get_args(hints[each.name]) if kind is not type(None))
        for each in fields(section)
    }


def _read(kind: type[Any], value: Any) -> Any:
    if value is None:
        return None
    if hasattr(kind, "from_document"):
        return kind.from_document(value)
    return kind(value) if issubclass(kind, Word) else value


def _write(value: Any, before: Any) -> Any:
    if isinstance(value, Word):
        return value.value
    if not hasattr(value, "onto"):
        return value
    return value.onto(before if isinstance(before, Mapping) else {})


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


_ANY_ARRAY, _ANY_DIMENSION = "any_array", "Any"
_MAX_CHUNKS = (1 << 32) - 1
_SETTING = "manifest.splitting"
_PRELOAD = "manifest.preload"


@dataclass(frozen=True, slots=True)
class ArrayCondition:
    """Which arrays a setting is about. Regular expressions are searched for, not anchored."""

    setting: ClassVar[str]
    words: ClassVar[tuple[str, ...]]  # kinds without arguments
    kind: str  # one of `words`, "path_matches", "name_matches", "or", "and"
    regex: str | None = None  # of path_matches, over "/group/array", and name_matches
    conditions: tuple[Self, ...] = ()  # of "or" and "and"

    @classmethod
    def path_matches(cls, regex: str) -> Self:
        """Match arrays whose path contains the expression."""
        return cls("path_matches", regex)

    @classmethod
    def name_matches(cls, regex: str) -> Self:
        """Match arrays whose name (the last part of the path) contains the expression."""
        return cls("name_matches", regex)

    @classmethod
    def or_conditions(cls, conditions: Sequence[Self]) -> Self:
        """Match arrays that any of the conditions matches."""
        return cls("or", conditions=tuple(conditions))

    @classmethod
    def and_conditions(cls, conditions: Sequence[Self]) -> Self:
        """Match arrays that all of the conditions match."""
        return cls("and", conditions=tuple(conditions))

    def __or__(self, other: Self) -> Self:
        return self.or_conditions([self, other])

    def __and__(self, other: Self) -> Self:
        return self.and_conditions([self, other])

    def onto(self, document: object) -> Anything:  # noqa: ARG002 - a condition has no other keys
        """Return the persisted form."""
        if self.kind in self.words:
            return self.kind
        if self.regex is not None:
            return {self.kind: {"regex": self.regex}}
        return {self.kind: [each.onto(None) for each in self.conditions]}

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read the persisted form. Raises ``InvalidInputError``."""
        match document:
            case str(word) if word in cls.words:
                return cls(word)
            case {"path_matches": {"regex": str(regex)}}:
                return cls("path_matches", regex)
            case {"name_matches": {"regex": str(regex)}}:
                return cls("name_matches", regex)
            case {"or": [*parts]}:
                return cls.or_conditions([cls.from_document(part) for part in parts])
            case {"and": [*parts]}:
                return cls.and_conditions([cls.from_document(part) for part in parts])
            case _:
                raise not_understood(cls.setting, document)


def not_understood(setting: str, found: object) -> InvalidInputError:
    """Return the error of a part of a setting that has none of its forms."""
    return InvalidInputError(
        f"the repository's config holds a part of {setting} that is not understood",
        do=f"Correct `{setting}` in the config, or upgrade icevirt.",
        found=found,
    )


@dataclass(frozen=True, slots=True)
class ManifestSplitCondition(ArrayCondition):
    """Which arrays a rule is about."""

    setting = _SETTING
    words = (_ANY_ARRAY,)

    @classmethod
    def AnyArray(cls) -> Self:  # noqa: N802 - icechunk's name
        """Match every array."""
        return cls(_ANY_ARRAY)


class ManifestSplitDimCondition:
    """Selects the axes that a number of chunks applies to."""

    @dataclass(frozen=True, slots=True)
    class Axis:
        """The axis of this number, from 0."""

        axis: int

    @dataclass(frozen=True, slots=True)
    class DimensionName:
        """Axes whose dimension name contains the expression."""

        regex: str

    @dataclass(frozen=True, slots=True)
    class Any:
        """Every axis."""


type DimCondition = (
    ManifestSplitDimCondition.Axis
    | ManifestSplitDimCondition.DimensionName
    | ManifestSplitDimCondition.Any
)
type SplitSizes = tuple[tuple[ManifestSplitCondition, tuple[tuple[DimCondition, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class ManifestSplittingConfig:
    """Rules in order: of which arrays, how many chunks per manifest and axis."""

    split_sizes: SplitSizes

    @staticmethod
    def from_dict(
        split_sizes: Mapping[ManifestSplitCondition, Mapping[DimCondition, int]],
    ) -> ManifestSplittingConfig:
        """Make rules; the first rule that selects an axis applies to it.

        Raises:
            InvalidInputError: A number of chunks is not between 1 and 2^32 - 1.
        """
        for sizes in split_sizes.values():
            for number in sizes.values():
                if not 1 <= number <= _MAX_CHUNKS:
                    raise InvalidInputError(
                        "a manifest must hold between 1 and 2^32 - 1 chunks along each axis",
                        do="Omit the axis to keep it in one piece.",
                        num_chunks=number,
                    )
        return ManifestSplittingConfig(
            tuple((condition, tuple(sizes.items())) for condition, sizes in split_sizes.items())
        )

    def to_dict(self) -> dict[ManifestSplitCondition, dict[DimCondition, int]]:
        """Return what `from_dict` takes."""
        return {condition: dict(sizes) for condition, sizes in self.split_sizes}

    def onto(self, document: Mapping[str, Anything]) -> dict[str, Anything]:
        """Return the persisted form, with all other keys as in ``document``."""
        sizes = [
            [
                condition.onto(None),
                [{"condition": _dim_document(dim), "num_chunks": n} for dim, n in sizes],
            ]
            for condition, sizes in self.split_sizes
        ]
        return {**document, "split_sizes": sizes}

    @classmethod
    def from_document(cls, document: Mapping[str, Anything]) -> ManifestSplittingConfig:
        """Read the persisted form. Raises ``InvalidInputError``."""
        rules = []
        for entry in document.get("split_sizes") or ():
            match entry:
                case [condition, [*sizes]]:
                    read = ManifestSplitCondition.from_document(condition)
                    rules.append((read, tuple(map(_read_size, sizes))))
                case _:
                    raise not_understood(_SETTING, entry)
        return cls(tuple(rules))


def _dim_document(condition: DimCondition) -> Anything:
    match condition:
        case ManifestSplitDimCondition.Axis(axis):
            return {"Axis": axis}
        case ManifestSplitDimCondition.DimensionName(regex):
            return {"DimensionName": regex}
        case ManifestSplitDimCondition.Any():
            return _ANY_DIMENSION


def _read_size(entry: object) -> tuple[DimCondition, int]:
    match entry:
        case {"condition": "Any", "num_chunks": int(number)}:
            return ManifestSplitDimCondition.Any(), number
        case {"condition": {"Axis": int(axis)}, "num_chunks": int(number)}:
            return ManifestSplitDimCondition.Axis(axis), number
        case {"condition": {"DimensionName": str(regex)}, "num_chunks": int(number)}:
            return ManifestSplitDimCondition.DimensionName(regex), number
        case _:
            raise not_understood(_SETTING, entry)


@dataclass(frozen=True, slots=True)
class ManifestPreloadCondition(ArrayCondition):
    """Which arrays, or which manifests of them."""

    setting = _PRELOAD
    words = ("true", "false")
    bounds: tuple[int | None, int | None] = (None, None)  # of "num_refs": from, up to but without

    @classmethod
    def num_refs(cls, from_refs: int | None, to_refs: int | None) -> Self:
        """Match manifests of so many references, ``to_refs`` excluded; None means unbounded."""
        return cls("num_refs", bounds=(from_refs, to_refs))

    @classmethod
    def true(cls) -> Self:
        """Match every array."""
        return cls("true")

    @classmethod
    def false(cls) -> Self:
        """Match none."""
        return cls("false")

    def onto(self, document: object) -> Anything:
        """Return the persisted form."""
        if self.kind != "num_refs":
            return ArrayCondition.onto(self, document)
        low, high = self.bounds
        return {
            "num_refs": {
                "from": "Unbounded" if low is None else {"Included": low},
                "to": "Unbounded" if high is None else {"Excluded": high},
            }
        }

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read the persisted form. Raises ``InvalidInputError``."""
        match document:
            case {"num_refs": {"from": low, "to": high}}:
                return cls.num_refs(_read_bound(low, above=0), _read_bound(high, above=1))
            case _:
                return super(ManifestPreloadCondition, cls).from_document(document)


@dataclass(frozen=True, slots=True)
class ManifestPreloadConfig(Section):
    """Which manifests are fetched early, and how many at most."""

    max_total_refs: int | None = None
    preload_if: ManifestPreloadCondition | None = None
    max_arrays_to_scan: int | None = None


def _read_bound(document: object, *, above: int) -> int | None:
    """Read a bound; ``above`` 0 says that it is the lower one, which is included."""
    match document:
        case "Unbounded":
            return None
        case {"Included": int(number)}:
            return number + above
        case {"Excluded": int(number)}:
            return number + 1 - above
        case _:
            raise not_understood(_PRELOAD, document)


@dataclass(frozen=True, slots=True)
class ManifestVirtualChunkLocationCompressionConfig(Section):
    """When and how the locations of virtual chunks are compressed; None is the default."""

    min_num_chunks: int | None = None  # 1000: manifests of fewer references are left plain
    dictionary_max_training_samples: int | None = None  # 100
    dictionary_max_size_bytes: int | None = None  # 2048
    compression_level: int | None = None  # 3


@dataclass(frozen=True, slots=True)
class ManifestConfig(Section):
    """The settings of manifests; None is the default. icevirt does not use ``preload`` itself."""

    preload: ManifestPreloadConfig | None = None
    splitting: ManifestSplittingConfig | None = None
    virtual_chunk_location_compression: ManifestVirtualChunkLocationCompressionConfig | None = None
    max_concurrent_manifest_fetches_during_commit: int | None = None
