#!/usr/bin/env bash
# Arrays of bytes that zarr 2 wrote with its defaults do not open in zarr 3, and texts that were
# never written become '0'.
#
# Versions: zarr 2.18.7 with numcodecs 0.15.1 (writer), zarr 3.4.2 (reader)
# Expected: `VLenBytes` arrays open as `VLenUTF8` arrays do. Elements that were never written are
#   empty, or 0 as zarr 2 returns them.
# Seen: zarr 2 writes the fill value 0 for both, since no other was given. zarr 3 raises a TypeError
#   when it opens the array of bytes, and reads missing texts as '0', as if somebody had written it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 two
uv pip install --quiet --python two/bin/python zarr==2.18.7 numcodecs==0.15.1 numpy==2.2.6
uv venv --quiet --python 3.13 three
uv pip install --quiet --python three/bin/python zarr==3.4.2

two/bin/python -W ignore - <<'EOF'
import numcodecs
import numpy as np
import zarr

root = zarr.open_group("s.zarr", mode="w")
how = {"shape": (4,), "chunks": (2,), "dtype": object}
root.create_dataset("text", object_codec=numcodecs.VLenUTF8(), **how)[:2] = np.array(["a", ""], object)
root.create_dataset("bytes", object_codec=numcodecs.VLenBytes(), **how)[:2] = np.array([b"a", b""], object)
for name in ("text", "bytes"):
    print("zarr 2", name, root[name][:].tolist())
    assert root[name][:].tolist()[2:] == [0, 0]
EOF

three/bin/python -W ignore - <<'EOF'
import zarr

read = zarr.open_array("s.zarr", path="text", mode="r")[:].tolist()
print("zarr 3 text", read)
assert read == ["a", "", "0", "0"]
try:
    zarr.open_array("s.zarr", path="bytes", mode="r")
except TypeError as error:
    print("zarr 3 bytes", error)
else:
    raise AssertionError("it opened")
EOF
