"""A scanner through VirtualiZarr whose parser names arrays as kerchunk's references do."""

import json

from icevirt_scanners.virtualizarr.scanner import VirtualizarrScanner


def parse(url, registry):
    from virtualizarr.manifests import (
        ChunkManifest,
        ManifestArray,
        ManifestGroup,
        ManifestStore,
    )
    from virtualizarr.manifests.utils import create_v3_array_metadata

    store, path = registry.resolve(url)
    held = json.loads(bytes(store.get(path).bytes()))
    import numpy as np

    def array(name):
        location, offset, length = held[f"{name}/0"]
        dims = json.loads(held[f"{name}/.zattrs"])["_ARRAY_DIMENSIONS"] if "/" not in name else None
        return ManifestArray(
            metadata=create_v3_array_metadata(
                shape=(2,), data_type=np.dtype("<i4"), chunk_shape=(2,), dimension_names=dims
            ),
            chunkmanifest=ChunkManifest(
                {"0": {"path": f"file://{location}", "offset": offset, "length": length}}
            ),
        )

    names = [key.removesuffix("/.zarray") for key in held if key.endswith("/.zarray")]
    inner = ManifestGroup(arrays={"b": array("a/b")})
    arrays = {name: array(name) for name in names if name != "a/b"}
    return ManifestStore(ManifestGroup(arrays=arrays, groups={"a": inner}), registry=registry)


scanner = VirtualizarrScanner(parse)
