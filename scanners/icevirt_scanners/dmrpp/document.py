"""Read a DMR++ document: DAP4's description of a file, with where each chunk lies.

The document is read as a stream of elements. Those of chunks become columns; nothing else of the
document grows with their number. Elements that this module does not know are left out with what
they hold; where they are in a variable, the variable says so, and is not represented.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError
from icevirt.model import paths
from icevirt.model.paths import node_name
from icevirt_scanners.hdf5.attributes import HIDDEN

_PLACES = "xml.opendap.org/dap/dmrpp/1.0.0#"  # end of the name space; some write https://
NUMBERS = {
    "Byte": "u1",
    "UByte": "u1",
    "Int8": "i1",
    "UInt8": "u1",
    "Int16": "i2",
    "UInt16": "u2",
    "Int32": "i4",
    "UInt32": "u4",
    "Int64": "i8",
    "UInt64": "u8",
    "Float32": "f4",
    "Float64": "f8",
}
_OTHERS = frozenset({"Char", "String", "URL", "URI", "Opaque", "Structure", "Sequence", "Enum"})
_INLINE = frozenset({"compact", "missingdata"})
_MOST = 1 << 16  # positions that are text at a time
_LONGEST = 1 << 30  # bytes of values in a document


class DocumentError(Exception):
    """The document is damaged; the message says how."""


@dataclass(slots=True)
class Chunks:
    """Where the chunks of a variable lie."""

    offset: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    edges: tuple[int, ...] = ()  # of a chunk; () where the variable is contiguous
    filters: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()  # of deflate, in the order of the filters
    is_big_endian: bool = False
    fill: str = ""
    inline: bytes | None = None  # all values, which stand in the document
    is_packed: bool = False  # they may be deflated
    _texts: list[str] = field(default_factory=list)
    _positions: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, given: Mapping[str, str]) -> None:
        """Add the chunk of an element; one without bytes was never written."""
        if not (length := _count(given["nBytes"])):
            return
        self.offset.append(_count(given["offset"]))
        self.length.append(length)
        if position := given.get("chunkPositionInArray"):
            self._texts.append(position.strip("[] "))
            if len(self._texts) >= _MOST:
                self._pack()

    def values(self, nbytes: int) -> bytes | None:
        """Return values that stand in the document; None where they are not of so many bytes."""
        raw = self.inline or b""
        if len(raw) == nbytes or not self.is_packed:  # few values are not deflated
            return raw if len(raw) == nbytes else None
        worker = zlib.decompressobj()
        try:
            found = worker.decompress(raw, nbytes + 1)
        except zlib.error:
            return None
        return found if len(found) == nbytes else None

    def _pack(self) -> None:
        numbers = np.array(",".join(self._texts).split(","), np.int64)
        self._positions.append(numbers.reshape(len(self._texts), -1))
        self._texts = []

    def positions(self, ndim: int) -> NDArray[np.int64]:
        """Return the first element of each chunk, (n, ndim). Raises `ValueError`: not all say."""
        if self._texts:
            self._pack()
        if not self._positions:
            return np.zeros((len(self.offset), ndim), np.int64)
        found = np.concatenate(self._positions)
        if found.shape != (len(self.offset), ndim):
            raise ValueError("not every chunk says where it is in the array")
        return found


@dataclass(slots=True)
class DapVariable:
    """A variable of the document."""

    path: str
    kind: str  # the element that describes it
    dims: list[tuple[str, int]] = field(default_factory=list)  # path, "" without name, and length
    attributes: dict[str, Any] = field(default_factory=dict)
    enumeration: str = ""  # path of it
    chunks: Chunks | None = None
    unknown: list[str] = field(default_factory=list)  # what this module does not read of it


@dataclass(slots=True)
class Document:
    """What a document describes."""

    name: str = ""  # of the file that it was made of
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)  # attributes by path
    variables: dict[str, DapVariable] = field(default_factory=dict)
    enumerations: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)


def read_document(body: bytes, url: str) -> Document:
    """Read a document.

    Raises:
        ScanError: It is damaged.
    """
    reader = _DocumentReader()
    try:
        reader.parser.Parse(body, True)
    except (expat.ExpatError, DocumentError, KeyError, ValueError, TypeError) as error:
        raise ScanError(
            "a damaged DMR++ document",
            do="Fetch it again, or scan the file that it describes.",
            file=url,
            line=reader.parser.CurrentLineNumber,
            cause=f"{type(error).__name__}: {error}",
        ) from error
    return reader.document


class _DocumentReader:
    """Handles the elements of a document as they come."""

    def __init__(self) -> None:
        self.document = Document()
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._take
        self.parser.StartDoctypeDeclHandler = _refuse_declarations
        self._groups: list[str] = []
        self._sizes: dict[str, int] = {}
        self._variable: DapVariable | None = None
        self._attributes: list[
            tuple[str, str, list[Any]]
        ] = []  # name, type and values of open ones
        self._enumeration = ""
        self._inside = 0  # how deep in an element that is not read
        self._text: list[str] | None = None
        self._length = 0

    # -- elements ------------------------------------------------------------------------------

    def _begin(self, tag: str, given: dict[str, str]) -> None:
        space, name = _split(tag)
        given = {key.rpartition(" ")[2]: value for key, value in given.items()}
        if self._inside or (self._variable is not None and self._is_unknown(space, name)):
            self._inside += 1
            return
        if name == "Attribute":
            self._attributes.append((given.get("name", ""), given.get("type", ""), []))
        elif self._attributes:
            self._text = [] if name == "Value" else None
            if "value" in given:
                self._attributes[-1][2].append(given["value"])
        elif space == _PLACES:
            self._begin_place(name, given)
        else:
            self._begin_node(name, given)

    def _is_unknown(self, space: str, name: str) -> bool:
        """Say whether a variable holds an element that is not read, and remember that it does."""
        known = (
            {"chunks", "chunk", "chunkDimensionSizes", *_INLINE}
            if space == _PLACES
            else {"Dim", "Attribute", "Map"}
        )
        if name in known or self._attributes:
            return False
        if self._variable is not None:
            self._variable.unknown.append(name)
        return True

    def _begin_node(self, name: str, given: dict[str, str]) -> None:
        match name:
            case "Dataset":
                self._open_group(paths.ROOT)
                self.document.name = given.get("name", "")
            case "Group":
                self._open_group(self._below(given["name"]))
            case "Dimension":
                self._sizes[self._below(given["name"])] = _count(given["size"])
            case "Enumeration":
                self._enumeration = self._below(given["name"])
                self.document.enumerations[self._enumeration] = (given["basetype"], {})
            case "EnumConst":
                members = self.document.enumerations[self._enumeration][1]
                members[given["name"]] = int(given["value"])
            case "Dim" if self._variable is not None:
                self._variable.dims.append(self._dimension(given))
            case _ if name in NUMBERS or name in _OTHERS:
                path = self._below(given["name"])
                if path in self.document.variables or path in self.document.groups:
                    raise DocumentError(f"{path} is there twice")
                enumeration = self._resolve(given["enum"]) if name == "Enum" else ""
                self._variable = DapVariable(path=path, kind=name, enumeration=enumeration)
                self.document.variables[path] = self._variable
            case _:
                pass

    def _open_group(self, path: str) -> None:
        if path in self.document.groups:
            raise DocumentError(f"{path} is there twice")
        self._groups.append(path)
        self.document.groups[path] = {}

    def _below(self, name: str) -> str:
        if not self._groups:
            raise DocumentError("no Dataset")
        return paths.join(self._groups[-1], node_name(name.encode())[0])

    def _resolve(self, name: str) -> str:
        return name if name.startswith("/") else self._below(name)

    def _dimension(self, given: Mapping[str, str]) -> tuple[str, int]:
        if "name" not in given:
            return "", _count(given["size"])
        path = self._resolve(given["name"])
        return path, self._sizes[path]

    def _begin_place(self, name: str, given: dict[str, str]) -> None:
        found = self._variable
        if found is None:
            return
        if name == "chunks":
            levels = given.get("deflateLevel", "").replace(",", " ").split()
            found.chunks = Chunks(
                filters=tuple(given.get("compressionType", "").split()),
                levels=tuple(map(int, levels)),
                is_big_endian=given.get("byteOrder") == "BE",
                fill=given.get("fillValue", ""),
            )
        elif name == "chunk":
            found.chunks = found.chunks or Chunks()  # versions before 3.20 have no element around
            if "href" in given or int(given.get("fm", "0")):
                found.unknown.append("a chunk in another file, or with other filters")
            found.chunks.add(given)
        else:
            self._text, self._length = [], 0

    def _end(self, tag: str) -> None:
        space, name = _split(tag)
        if self._inside:
            self._inside -= 1
        elif name == "Attribute":
            self._end_attribute()
        elif self._attributes:
            if name == "Value":
                self._attributes[-1][2].append("".join(self._text or ()))
            self._text = None
        elif space == _PLACES:
            self._end_place(name)
        elif name in ("Group", "Dataset"):
            self._groups.pop()
        elif self._variable is not None and name == self._variable.kind:
            self._variable = None

    def _end_attribute(self) -> None:
        name, kind, values = self._attributes.pop()
        if kind in ("Container", "OtherXML") or self._attributes or name in HIDDEN:
            return  # what is in a container describes how the document was made
        held = self._variable.attributes if self._variable else None
        if held is None:
            held = self.document.groups[self._groups[-1]]
        held[name] = _values(kind, values)

    def _end_place(self, name: str) -> None:
        found, text = self._variable, "".join(self._text or ())
        self._text = None
        if found is None:
            return
        if name == "chunkDimensionSizes" and found.chunks is not None:
            found.chunks.edges = tuple(map(int, text.split()))
        elif name in _INLINE:
            found.chunks = found.chunks or Chunks()
            found.chunks.inline, found.chunks.is_packed = _decode(text), name == "missingdata"

    def _take(self, text: str) -> None:
        if self._text is not None and not self._inside:
            self._length += len(text)
            if self._length > _LONGEST:
                raise DocumentError("a value is too long")
            self._text.append(text)


def _count(text: str) -> int:
    found = int(text)
    if not 0 <= found < 1 << 62:
        raise DocumentError(f"the number {found}")
    return found


def _split(tag: str) -> tuple[str, str]:
    space, _, name = tag.rpartition(" ")
    return (_PLACES if space.endswith(_PLACES) else space), name


def _refuse_declarations(*_: Any) -> None:
    raise DocumentError("it declares entities")


def _values(kind: str, texts: Sequence[str]) -> Any:
    """Return the values of an attribute: one as a scalar, several as an array."""
    if kind in NUMBERS:
        found = np.array([_number(text, NUMBERS[kind]) for text in texts], NUMBERS[kind])
        return found[0] if len(found) == 1 else found
    return texts[0] if len(texts) == 1 else list(texts)


def _number(text: str, dtype: str) -> Any:
    number = np.dtype(dtype)
    return number.type(float(text)) if number.kind == "f" else number.type(int(text))


def number_of(text: str, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as the document spells it. Raises `ValueError`: it is no number."""
    try:
        return _number(text.strip(), dtype.str)
    except OverflowError as error:
        raise ValueError(str(error)) from error


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except binascii.Error as error:
        raise DocumentError(f"values that are not base64: {error}") from error
