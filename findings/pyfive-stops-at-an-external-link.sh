#!/usr/bin/env bash
# One external link makes all members of its group unreadable for pyfive.
#
# Versions: pyfive 1.3.0, h5py 3.16.0, numpy 2.5.5
# Expected: The other members open; the link says that it leads elsewhere when it is followed, as
#   a soft link does.
# Seen: Listing the group, and opening any member of it, raises AssertionError without a text. A
#   soft link does no harm.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  pyfive==1.3.0 h5py==3.16.0 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import h5py
import pyfive

for name, link in (("soft", h5py.SoftLink("/data")), ("external", h5py.ExternalLink("b.h5", "/x"))):
    with h5py.File(f"{name}.h5", "w") as file:
        file["data"] = [1, 2]
        file["link"] = link
with pyfive.File("soft.h5") as file:
    assert sorted(file) == ["data", "link"]
    assert file["data"][:].tolist() == [1, 2]


def look(ask):
    try:
        with pyfive.File("external.h5") as file:
            ask(file)
    except AssertionError as error:
        return f"AssertionError {str(error)!r}"
    return "works"


listed, opened = look(list), look(lambda file: file["data"][:])
print("list:", listed, "open data:", opened)
assert listed == opened == "AssertionError ''"
EOF
