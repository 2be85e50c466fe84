"""Hold a codec of zarr that another one decodes for; all else is its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zarr.core.array_spec import ArraySpec


@dataclass(frozen=True)
class WrappedCodec:
    """A codec that says of itself what the codec in it says."""

    codec: Any

    def to_dict(self) -> dict[str, Any]:
        """Return what the codec itself says."""
        document: dict[str, Any] = self.codec.to_dict()
        return document

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Return what the codec itself says."""
        size: int = self.codec.compute_encoded_size(input_byte_length, chunk_spec)
        return size
