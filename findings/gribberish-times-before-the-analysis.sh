#!/usr/bin/env bash
# gribberish reads a forecast time of -6 hours as one of 2,147,483,654 hours.
#
# Versions: gribberish 1.9.0, ecCodes 2.50.0, numpy 2.5.5
# Expected: 2007-03-23 06:00 for the analysis of 12:00: GRIB2 stores negative numbers by sign and
#   magnitude, and ecCodes reads them (windows of accumulations and 4D-Var begin before the
#   analysis).
# Seen: The sign bit is read as part of the number: ValueError, a year of -242977.
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


def encode(hours):
    message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    eccodes.codes_set(message, "forecastTime", hours)
    assert eccodes.codes_get(message, "dataTime") == 1200
    return message, eccodes.codes_get_message(message)


handle, after = encode(6)
metadata = gribberish.parse_grib_message_metadata(after, 0)
print("+6:", metadata.forecast_date)
assert metadata.forecast_date.hour == 18
handle, before = encode(-6)
assert eccodes.codes_get(handle, "validityTime") == 600
try:
    print(gribberish.parse_grib_message_metadata(before, 0).forecast_date)
except ValueError as error:
    print("-6:", error)
    assert "year -242977" in str(error)
else:
    raise AssertionError("no error")
EOF
