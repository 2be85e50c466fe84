"""icechunk's names of virtual chunks."""

from icevirt.access.virtual_refs import VirtualChunkSpec
from icevirt.icechunk._shims.configuration import VirtualChunkContainer

__all__ = ["VirtualChunkContainer", "VirtualChunkSpec"]
