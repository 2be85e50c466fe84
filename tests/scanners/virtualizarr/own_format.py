"""An adapter of a format with a codec of its own: three numbers."""

import numpy as np
from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore
from virtualizarr.manifests.utils import create_v3_array_metadata
from zarr.codecs import BytesCodec
from zarr.registry import register_codec

from icevirt_scanners.virtualizarr.scanner import VirtualizarrScanner


class OwnCodec(BytesCodec):
    """A codec of some adapter, which reads its format by itself."""

    def to_dict(self):
        return {"name": "own_format"}

    @classmethod
    def from_dict(cls, data):
        del data
        return cls()


register_codec("own_format", OwnCodec)


def own_format(url, registry):
    """Describe a file of three numbers, as a parser for VirtualiZarr with a codec of its own."""
    del registry
    metadata = create_v3_array_metadata(
        shape=(3,),
        chunk_shape=(3,),
        data_type=np.dtype("i4"),
        codecs=[{"name": "own_format"}],
        dimension_names=("x",),
    )
    entries = {"0": {"path": url, "offset": 0, "length": 12}}
    array = ManifestArray(metadata=metadata, chunkmanifest=ChunkManifest(entries=entries))
    return ManifestStore(ManifestGroup(arrays={"v": array}), registry=None)


scanner = VirtualizarrScanner(own_format)
