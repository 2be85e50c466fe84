"""Scan GRIB 2: a message is a chunk, which the codec of gribberish decodes."""
