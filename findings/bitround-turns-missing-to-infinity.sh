#!/usr/bin/env bash
# numcodecs' BitRound turns the missing value of R into infinity, and a NaN whose bits are all
# ones into zero.
#
# Versions: numcodecs 0.17.1, numpy 2.5.5
# Expected: NaN stays NaN: rounding takes bits from the mantissa of numbers.
# Seen: NA_real_ of R (0x7ff00000000007a2) becomes infinity; all ones becomes 0.0 or -0.0; the
#   largest float32 becomes infinity. numpy's own NaN stays.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  numcodecs==0.17.1 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import numpy as np
from numcodecs import BitRound

codec = BitRound(keepbits=10)
CASES = (  # bits, type, what comes back
    (0x7FF00000000007A2, "f8", np.inf),
    (0x7FFFFFFF, "f4", -0.0),
    (0xFFFFFFFF, "f4", 0.0),
    (0x7F7FFFFF, "f4", np.inf),
    (0x7FC00000, "f4", np.nan),
)
for bits, kind, expected in CASES:
    values = np.array([bits], kind.replace("f", "u")).view(kind)
    (read,) = np.frombuffer(codec.decode(codec.encode(values.copy())), kind)
    print(hex(bits), values[0], "becomes", read)
    assert np.array_equal(read, expected, equal_nan=True)
    assert np.signbit(read) == np.signbit(expected)
EOF
