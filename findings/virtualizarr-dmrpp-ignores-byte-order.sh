#!/usr/bin/env bash
# VirtualiZarr's parser of DMR++ takes big-endian values for little-endian ones.
#
# Versions: virtualizarr 2.8.0, zarr 3.4.2, h5py 3.16.0
# Expected: 0, 1, 2, ...: the DMR++ says byteOrder="BE" at its chunks, as Hyrax writes it for files
#   of big-endian numbers (of EOS, and of every program that keeps to NetCDF-3's order).
# Seen: 0, 16777216, 33554432, ... without an error, and {"endian": "little"} as codec. The HDF5
#   parser of the same package reads the same file right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  virtualizarr[hdf]==2.8.0 zarr==3.4.2 h5py==3.16.0 numpy==2.5.5 obstore==0.12.1 lxml==6.1.1 \
  defusedxml==0.7.1

env/bin/python -W ignore - <<'EOF'
import os

import h5py
import numpy as np
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import DMRPPParser, HDFParser

values = np.arange(48, dtype=">i4").reshape(6, 8)
with h5py.File("a.h5", "w") as file:
    file.create_dataset("v", data=values, chunks=(3, 4))
with h5py.File("a.h5") as file:
    chunks = [file["v"].id.get_chunk_info(at) for at in range(4)]
listed = "".join(
    f'<dmrpp:chunk offset="{each.byte_offset}" nBytes="{each.size}"'
    f' chunkPositionInArray="[{",".join(map(str, each.chunk_offset))}]"/>'
    for each in chunks
)
url = f"file://{os.getcwd()}/a.h5"
DAP, DMRPP = "xml.opendap.org/ns/DAP/4.0#", "xml.opendap.org/dap/dmrpp/1.0.0#"
with open("a.h5.dmrpp", "w") as file:
    file.write(
        f"""<?xml version="1.0" encoding="ISO-8859-1"?>
<Dataset xmlns="{"http"}://{DAP}" xmlns:dmrpp="{"http"}://{DMRPP}" dapVersion="4.0"
 dmrVersion="1.0" name="a.h5" dmrpp:href="{url}" dmrpp:version="3.21.1">
<Dimension name="y" size="6"/><Dimension name="x" size="8"/>
<Int32 name="v"><Dim name="/y"/><Dim name="/x"/>
<dmrpp:chunks fillValue="0" byteOrder="BE">
<dmrpp:chunkDimensionSizes>3 4</dmrpp:chunkDimensionSizes>{listed}</dmrpp:chunks></Int32></Dataset>
"""
    )
registry = ObjectStoreRegistry({"file://": LocalStore()})
by_dmrpp = zarr.open_group(DMRPPParser()(url=f"{url}.dmrpp", registry=registry), mode="r")["v"]
by_hdf = zarr.open_group(HDFParser()(url=url, registry=registry), mode="r")["v"]
print("DMR++", by_dmrpp[0], "HDF5", by_hdf[0])
assert np.array_equal(by_hdf[...], values)
assert np.array_equal(by_dmrpp[...], values.astype("<i4").byteswap())
EOF
