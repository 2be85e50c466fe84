#!/usr/bin/env bash
# gribberish reads CCSDS of 2 to 4 or of 25 to 31 bits a value as other values, without an error.
#
# Versions: gribberish 1.9.0, ecCodes 2.50.0 (to make the messages and to read them), numpy 2.5.5
# Expected: The values, as of 5 to 24 bits, or an error, as of 1 bit. Messages that are alike but for
#   their bits lie beside each other in one archive: where a writer keeps a decimal precision, bits
#   grow with the range of a field, so with the lead of an accumulation.
# Seen: All widths from 5 to 24 bits are equal to ecCodes bit for bit. The others are not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  eccodes==2.50.0 eccodeslib==2.50.0.33 numpy==2.5.5 gribberish==1.9.0

env/bin/python -W ignore - <<'EOF'
import eccodes
import gribberish
import numpy as np


GRID = {
    "Ni": 40,
    "Nj": 30,
    "latitudeOfFirstGridPointInDegrees": 20,
    "latitudeOfLastGridPointInDegrees": -9,
    "longitudeOfFirstGridPointInDegrees": 0,
    "longitudeOfLastGridPointInDegrees": 39,
    "iDirectionIncrementInDegrees": 1,
    "jDirectionIncrementInDegrees": 1,
}


def encode(bits):
    message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    for key, value in GRID.items():
        eccodes.codes_set(message, key, value)
    eccodes.codes_set(message, "packingType", "grid_ccsds")
    eccodes.codes_set(message, "bitsPerValue", bits)
    values = np.random.default_rng(1).standard_normal(1200).cumsum()
    eccodes.codes_set_values(message, values)
    assert eccodes.codes_get(message, "bitsPerValue") == bits
    return eccodes.codes_get_message(message), values, eccodes.codes_get_values(message)


right = []
for bits in range(2, 32):
    message, values, theirs = encode(bits)
    # ecCodes gives back what was packed, to the precision of so many bits
    assert np.abs(values - theirs).max() <= np.ptp(values) / 2 ** (bits - 2)
    if np.array_equal(gribberish.parse_grib_array(message, 0), theirs):
        right.append(bits)
assert right == list(range(5, 25)), right
print("gribberish 1.9.0 reads CCSDS of", right[0], "to", right[-1], "bits; of others, other values")
EOF
