"""References in kerchunk's format, and their scan."""

import json
from pathlib import Path

import numpy as np

from icevirt.objects.opening import open_source
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import combine
from icevirt_scanners.kerchunk.scanner import KerchunkScanner


def scan(path, **options):
    with open_source(path) as source:
        assert KerchunkScanner().accepts(source.read(0, 4096))
        how = ScannerOptions(strict=True, **options)
        return combine(KerchunkScanner().scan(source, how), how)


def write(folder, document, name="refs.json"):
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def target_in(folder):
    """Write a file of 24 little-endian i4, and return its path."""
    path = folder / "data.bin"
    np.arange(24, dtype="<i4").tofile(path)
    return str(path)


def zarray(**changes):
    return json.dumps(
        {
            "zarr_format": 2,
            "shape": [4, 6],
            "chunks": [2, 6],
            "dtype": "<i4",
            "order": "C",
            "filters": None,
            "compressor": None,
            "fill_value": None,
        }
        | changes
    )


def references(target, **changes):
    return {
        ".zgroup": '{"zarr_format": 2}',
        "v/.zarray": zarray(**changes),
        "v/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"}),
        "v/0.0": [target, 0, 48],
        "v/1.0": [target, 48, 48],
    }


def parquet(folder, held, size):
    """Write a directory as fsspec and kerchunk do; return its metadata file."""
    import pandas as pd
    from fsspec.implementations.reference import LazyReferenceMapper

    class Arrow(LazyReferenceMapper):
        """Writes by pyarrow; fastparquet is not installed."""

        def flush(self, *args, **kwargs):
            old = pd.DataFrame.to_parquet

            def to_parquet(self, path=None, **options):
                known = {k: v for k, v in options.items() if k == "compression"}
                return old(self, path, engine="pyarrow", index=False, **known)

            pd.DataFrame.to_parquet = to_parquet
            try:
                super().flush(*args, **kwargs)
            finally:
                pd.DataFrame.to_parquet = old

    mapper = Arrow.create(str(folder / "refs"), record_size=size, engine="pyarrow")
    for key, value in held.items():
        mapper[key] = value.encode() if isinstance(value, str) else value
    mapper.flush()
    return Path(folder / "refs" / ".zmetadata")
