"""Say which packings of GRIB 2 the codec gribberish decodes as ecCodes does."""

from __future__ import annotations

CCSDS = 42
BITS = {0: (1, 32), 2: (1, 32), 3: (1, 32), 40: (1, 31), CCSDS: (5, 24)}
"""By template of section 5, as few and as many bits a value; 0 bits are a constant field.

gribberish 1.9.0 fails with others, or reads other values.
"""
