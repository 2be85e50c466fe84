"""Describe the settings of the persisted configuration, and merge documents of them.

A document is a tree of mappings. None is the default, which is also what an absent key means.

Where the official client cannot write conditionally, on a local disk, it persists the settings for
that together with the first container. In a copy of such a repository on an object store it obeys
them: it replaces `repo` unconditionally, and the commits of others are gone. So that is refused.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, overload

from icevirt.errors import FormatError, IcevirtError, InvalidInputError, StorageError

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


_SETTING = "unsafe_use_conditional_update"
_ONE_MACHINE = ("file:", "memory:")  # no place for the official client to write at the same time


def rebased(
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
            result[key] = rebased(before if isinstance(before, Mapping) else {}, after, other)
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
