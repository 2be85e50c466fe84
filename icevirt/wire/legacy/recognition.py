"""Recognize the format generation of a repository by the bytes of a snapshot."""

from __future__ import annotations

from typing import Any

from icevirt.errors import FormatError
from icevirt.wire.flatbuffer.reader import reading
from icevirt.wire.header import FileKind
from icevirt.wire.legacy import decode, e0, e1, e2, e3, e4, e5, e6
from icevirt.wire.legacy.encoding import Encoding, Framing, unreleased
from icevirt.wire.legacy.message_pack import MessagePackFile

ENCODINGS: dict[str, Encoding] = {
    module.ENCODING.generation.name: module.ENCODING for module in (e0, e1, e2, e3, e4, e5, e6)
}
"""The encodings by the name of their generation, oldest first."""
_FLATBUFFERS = b"Ichk"
_UNHEADED = 11  # fields of a snapshot, in E1 to E3
_HEADED, _LATEST = 9, 8
_EARLIEST = 7


def recognized(raw: bytes, *, has_config: bool) -> Encoding | None:
    """Return the encoding of a snapshot; None if it is empty and may be of several.

    Args:
        raw: The snapshot file.
        has_config: Whether the repository has a ``config.yaml``.

    Raises:
        FormatError: It is of a layout that was never released, or damaged.
    """
    payload, framing = decode.payload(raw, FileKind.snapshot)
    if payload[4:8] == _FLATBUFFERS:
        raise unreleased("a state of February 2025, between icechunk 0.1.3 and 0.2.0")
    with reading(FileKind.snapshot.name):
        value = MessagePackFile(payload).value()
    match value, framing:
        case tuple(), Framing.header if len(value) == _LATEST:
            return e6.ENCODING
        case tuple(), Framing.header if len(value) == _HEADED:
            return e4.ENCODING if _has_text_ids(value) else e5.ENCODING
        case tuple(), (Framing.bare | Framing.zstd) if len(value) == _UNHEADED:
            return _unheaded(value, framing, has_config=has_config)
        case tuple(), Framing.bare if len(value) == _EARLIEST:
            raise unreleased("a state of September 2024, before the first release")
        case _:
            raise FormatError(
                "the format generation of this repository is not known",
                do="The snapshot is damaged, or another program wrote it.",
                file=FileKind.snapshot.name,
            )


def _has_text_ids(value: tuple[Any, ...]) -> bool:
    match value[5]:
        case (str(), *_):
            return True
        case _:
            return False


def _unheaded(value: tuple[Any, ...], framing: Framing, *, has_config: bool) -> Encoding | None:
    nodes = value[-1]
    if has_config or framing is Framing.zstd:
        return e3.ENCODING
    if not isinstance(nodes, dict) or not nodes:
        return None
    match next(iter(nodes.values())):
        case (int(), *_):
            return e1.ENCODING
        case _:
            return e2.ENCODING
