#!/usr/bin/env bash
# imagecodecs' LZF decodes nothing to more than eight times its bytes, so that of an array that h5py
# compressed by LZF the chunks with the least in them are the ones that Zarr cannot read.
#
# Versions: imagecodecs 2026.10.10, h5py 3.16.0, numpy 2.5.5
# Expected: All chunks decode: the package names HDF5 among its formats, `lzf_encode` makes the same
#   stream, and its Zarr codec has the option `header=False` for streams without a length.
# Seen: Chunks of noise decode, chunks of zeros do not; `out=` takes a size, and the codec does not
#   pass on the size of the chunk, which it knows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python imagecodecs==2026.10.10 h5py==3.16.0 numpy==2.5.5

env/bin/python - <<'EOF'
import h5py
import imagecodecs
import numpy as np

steps = np.arange(256, dtype="<i4") // 4
values = np.concatenate([steps, np.zeros(256, "<i4")])
with h5py.File("a.h5", "w") as file:
    file.create_dataset("v", data=values, chunks=(256,), compression="lzf")
with h5py.File("a.h5") as file:
    assert np.array_equal(file["v"][:], values)
    raw = [file["v"].id.read_direct_chunk((at,))[1] for at in (0, 256)]
assert bytes(imagecodecs.lzf_decode(raw[0], header=False)) == steps.tobytes()
own = imagecodecs.lzf_encode(bytes(1024), header=False)
for stream in (raw[1], own):
    print(len(stream), "bytes of 1024 zeros")
    try:
        imagecodecs.lzf_decode(stream, header=False)
    except imagecodecs.LzfError as error:
        print(error)
    else:
        raise AssertionError("it decodes")
    assert bytes(imagecodecs.lzf_decode(stream, header=False, out=1024)) == bytes(1024)
EOF
