"""Define the tables of the catalog view: one row per file, array, attribute or reference.

They are made from the packed tables of `icevirt.archive.catalog` while they are read. Types are
Arrow types that Spark, DuckDB and pandas all have; numbers are signed and times have microseconds.
"""

from __future__ import annotations

FILES = (
    ("scan", "string"),  # identity of the scan: options and versions of the scanners
    ("url", "string"),
    ("size", "int64"),  # bytes
    ("etag", "string"),  # null where there is none
    ("last_modified", "time"),
    ("status", "string"),  # "ok", "corrupt", "crashed", "timeout", "oom" ...
    ("code", "string"),  # of the error, null where there is none
    ("error", "string"),
    ("signature", "string"),  # of what decides how its arrays decode; null for bad files
    ("time_limit", "float64"),  # seconds that scanning might take
    ("memory_limit", "int64"),  # bytes that it might take
    ("scanner", "string"),
    ("scanner_version", "string"),
    ("seconds", "float64"),  # that scanning took
    ("requests", "int64"),  # to the file's server
    ("bytes_fetched", "int64"),  # from it
    ("findings", "string"),  # JSON: [{"path", "code", "message", "severity"}]
    ("left_out", "strings"),  # paths of variables that were not asked for
    ("scanned_at", "time"),  # when its part of the catalog was written
)

ARRAYS = (
    ("scan", "string"),
    ("url", "string"),  # of the file
    ("path", "string"),
    ("data_type", "string"),  # JSON, as zarr spells it
    ("shape", "integers"),
    ("chunk_shape", "integers"),  # null where values were read and can be joined at any length
    ("dimension_names", "strings"),
    ("codecs", "string"),  # JSON
    ("fill_value", "string"),  # JSON
    ("attributes", "string"),  # JSON
    ("virtual", "int64"),  # references
    ("inline", "int64"),
    ("virtual_bytes", "int64"),
    ("inline_bytes", "int64"),
)

ATTRIBUTES = (
    ("scan", "string"),
    ("url", "string"),  # of the file
    ("path", "string"),  # of the group, "/" for the file's global attributes
    ("name", "string"),
    ("value", "string"),  # text as it is, other values as JSON
    ("dtype", "string"),  # of numbers, as numpy spells it; null for text
)

REFERENCES = (
    ("scan", "string"),
    ("file", "string"),  # URL of the file that was scanned
    ("path", "string"),  # of the array
    ("index", "integers"),  # of the chunk, in the file's own grid
    ("kind", "string"),  # "virtual": bytes of a file, "inline": bytes in the catalog
    ("url", "string"),  # where the bytes lie, null for inline ones
    ("offset", "int64"),
    ("length", "int64"),
    ("etag", "string"),
    ("last_modified", "time"),
    ("data", "binary"),  # of inline ones
)

TABLES = {
    "files": FILES,
    "arrays": ARRAYS,
    "attributes": ATTRIBUTES,
    "references": REFERENCES,
}
"""The tables of the view, by name."""
