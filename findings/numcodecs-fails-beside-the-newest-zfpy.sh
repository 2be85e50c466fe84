#!/usr/bin/env bash
# zarr cannot be imported once the newest zfpy is installed, whether ZFP is used or not.
#
# Versions: numcodecs 0.17.1, zarr 3.4.2, zfpy 1.0.1.post0 and 1.0.1, numpy 2.5.5
# Expected: `import zarr` works, and ZFP is there or not: numcodecs asks for the version to warn
#   of an old one.
# Seen: ValueError, invalid literal for int(): 'post0'. With zfpy 1.0.1 all is well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  zarr==3.4.2 numcodecs==0.17.1 zfpy==1.0.1.post0 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import subprocess
import sys

run = subprocess.run([sys.executable, "-c", "import zarr"], capture_output=True, text=True)
print(run.stderr.splitlines()[-1])
assert run.returncode
assert "invalid literal for int() with base 10: 'post0'" in run.stderr
subprocess.run(
    ["uv", "pip", "install", "--quiet", "--python", sys.executable, "zfpy==1.0.1"], check=True
)
subprocess.run([sys.executable, "-c", "import zarr, numcodecs.zfpy"], check=True)
EOF
