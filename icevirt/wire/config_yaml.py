"""Read and write ``config.yaml``, the configuration of V1 repositories.

A V2 mapping with one entry that names a kind (a kind of store, for example) is a tagged value here:
``!local_file_system /data``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from icevirt.errors import ConfigurationError, FormatError
from icevirt.model.json import MAX_DEPTH, JSONObject, refuse_deep

_KINDS = {
    ("virtual_chunk_containers", "*", "store"),
    ("manifest", "splitting", "split_sizes", "*", 0),
    ("manifest", "splitting", "split_sizes", "*", 1, "*", "condition"),
    ("manifest", "preload", "preload_if"),
}  # where a mapping of one entry is one of several kinds
_YAML = "tag:yaml.org,2002:"
_TYPES = ("null", "bool", "int", "float", "str", "map", "seq")  # what JSON has too
_MOST_BYTES = 1 << 20  # the library reads about 100 kB a second
_MOST_VALUES = 100_000  # of a document, each as often as an alias repeats it
_NESTED = ("or", "and", "num_refs")  # kinds that hold others, in a list or by name


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # a class of an untyped library
    """Reads tagged values as mappings of one entry."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # as above
    """Writes `_Kind` as tagged values."""

    analysis: Any

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        """Write equal parts out: other readers of this file know no aliases."""
        return True

    def choose_scalar_style(self) -> str:
        """Write tagged scalars as they are, without quotes: ``!Axis 0`` is a number."""
        tagged = (self.event.tag or "").startswith("!")
        if tagged and not self.event.style:
            self.analysis = self.analyze_scalar(self.event.value)
            if self.analysis.allow_block_plain:
                return ""
        style: str = super().choose_scalar_style()
        return style


class _Kind(NamedTuple):
    name: str
    value: Any


def loads(raw: bytes) -> dict[str, Any]:
    """Read a configuration.

    Raises:
        FormatError: It is no YAML, no mapping, or made to exhaust its reader.
    """
    try:
        _refuse_excess(raw)
        document = yaml.load(raw, _Loader)  # noqa: S506 - a safe loader with one more constructor
        refuse_deep(document, most=_MOST_VALUES)
    except Exception as error:  # its constructors raise many kinds
        raise _damage(str(error) or type(error).__name__) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _damage(f"a {type(document).__name__} instead of a mapping")
    return document


def _refuse_excess(raw: bytes) -> None:
    """Look at a file event by event before anything is built of it. Raises ``ValueError``.

    Aliases stand: they take no room until the document is walked, which is limited too. Merge keys
    are refused with the other types that no configuration has, for they multiply as it is built.
    """
    if len(raw) > _MOST_BYTES:
        raise ValueError(f"it has {len(raw):,} bytes, more than {_MOST_BYTES:,}")
    depth = 0
    for event in yaml.parse(raw, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        tag = getattr(event, "tag", None) or ""
        if tag.startswith(_YAML) and tag.removeprefix(_YAML) not in _TYPES:
            raise ValueError(f"it holds a value of the type {tag}")


def dumps(document: JSONObject, *, over: bytes | None = None) -> bytes:
    """Write a configuration.

    Args:
        document: What to write.
        over: The file that it takes the place of.

    Raises:
        FormatError: The file holds tagged values where none are known: they would be lost.
    """
    raw = _dump(document)
    if over is not None and (lost := _count_tags(over) - _count_tags(_dump(loads(over)))):
        raise FormatError(
            "the configuration holds settings of a newer client, which writing would lose",
            do="Upgrade icevirt, or change it with the client that wrote it.",
            tags=sorted(lost),
        )
    return raw


def _dump(document: JSONObject) -> bytes:
    text: str = yaml.dump(_mark(document, ()), Dumper=_Dumper, sort_keys=False)
    return text.encode()


def _mark(value: Any, at: tuple[Any, ...]) -> Any:
    """Return a value with a `_Kind` in each place that gets a tag."""
    if isinstance(value, Mapping):
        if len(value) == 1 and any(
            len(at) == len(kind)
            and all(want in ("*", part) for want, part in zip(kind, at, strict=True))
            for kind in _KINDS
        ):
            ((name, inner),) = value.items()
            return _Kind(name, _mark_inner(name, inner, at))
        return {key: _mark(item, (*at, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mark(item, (*at, row)) for row, item in enumerate(value)]
    return value


def _mark_inner(name: str, value: Any, at: tuple[Any, ...]) -> Any:
    if name in _NESTED and isinstance(value, Mapping):
        return {key: _mark(item, at) for key, item in value.items()}
    is_list = name in _NESTED and isinstance(value, list | tuple)
    return [_mark(item, at) for item in value] if is_list else value


def _count_tags(raw: bytes) -> Counter[str]:
    tags = (getattr(event, "tag", None) or "" for event in yaml.parse(raw, _Loader))
    return Counter(tag for tag in tags if tag.startswith("!"))


def _construct_tagged(loader: Any, name: str, node: Any) -> dict[str, Any]:
    match node:
        case yaml.MappingNode():
            value = loader.construct_mapping(node, deep=True)
        case yaml.SequenceNode():
            value = loader.construct_sequence(node, deep=True)
        case _:
            plain = loader.resolve(yaml.ScalarNode, node.value, (node.style is None, False))
            value = loader.construct_object(yaml.ScalarNode(plain, node.value))
    return {name: value}


def _whole(text: str) -> int:
    """Return the number that a text says in decimal digits. Raises ``ValueError``.

    By PyYAML's own rules ``0777`` is an octal number, and ``1:30`` has base 60. Numbers so written
    can be longer than Python writes out, so that whatever shows or stores them would fail.
    """
    return int(text)


def _represent_kind(dumper: Any, kind: _Kind) -> Any:
    node = dumper.represent_data(kind.value)
    if isinstance(kind.value, str):
        plain = dumper.resolve(yaml.ScalarNode, kind.value, (True, False))
        node.style = None if plain == node.tag else "'"
    node.tag = f"!{kind.name}"
    return node


_PLAIN = {
    "null": (r"~|null|Null|NULL|", "~nN\0"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
}  # YAML 1.2: by PyYAML's own rules "no" is false, and "1:30" a number
_Loader.yaml_implicit_resolvers = {}
for _name, (_form, _first) in _PLAIN.items():
    _letters = ["" if letter == "\0" else letter for letter in _first]
    _Loader.add_implicit_resolver(_YAML + _name, re.compile(f"({_form})$"), _letters)
_Loader.add_multi_constructor("!", _construct_tagged)
_Loader.add_constructor(_YAML + "int", lambda loader, node: _whole(loader.construct_scalar(node)))
_Dumper.add_representer(_Kind, _represent_kind)


_LONGEST = 500  # characters of a cause: hostile values are repeated in it


def _damage(cause: str) -> FormatError:
    return ConfigurationError(
        "the configuration of this repository, config.yaml, cannot be read",
        do="Repair this file, or remove it to use the defaults.",
        cause=" ".join(cause[:_LONGEST].split()),
    )
