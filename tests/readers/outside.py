"""Readers that have an environment of their own, which `just readers` makes and throws away.

Each is a function ``read(name)`` of a program. ``job`` has ``repo`` and ``prefix`` (an Icechunk repository and the
prefix of its files), ``zarr`` (a folder with the keys of the repository's store) and ``refs`` (a folder with a file of
kerchunk's references for each array).
"""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FRAME = """\
import json, os, pickle, sys
import numpy as np
job = json.loads(sys.argv[1])
{program}
found = {{}}
for name in job["names"]:
    try:
        value = np.asarray(read(name))
        found[name] = value.astype(object) if value.dtype.kind == "T" else value
    except BaseException as error:
        found[name] = f"{{type(error).__name__}}: {{error}}"
pickle.dump([found, versions()], open(sys.argv[2], "wb"))
sys.stdout.flush()
os._exit(0)
"""
_ICECHUNK = """\
import icechunk, zarr
access = {job["prefix"]: icechunk.credentials.LocalFileSystemAccess}
storage = icechunk.local_filesystem_storage(job["repo"])
repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
store = repo.readonly_session("main").store
"""
_BY_RASTERIO = """
import rasterio, warnings; warnings.simplefilter("ignore")
def read(name):
    with rasterio.open(place(name)) as opened:
        if not opened.count: raise ValueError("no raster")
        values = opened.read()
    return values[0] if len(values) == 1 else values
def versions(): return {"gdal": rasterio.__gdal_version__}
"""


IN_R = """\
read <- function(path) {
  values <- zarr$open_array(store, path = path, mode = "r")$`__getitem__`(python$Ellipsis)
  size <- as.integer(py_to_r(python$list(values$shape)))
  kind <- py_to_r(values$dtype$kind)
  if (kind %in% c("S", "M")) values <- values$astype("U")
  if (kind %in% c("S", "M", "U", "T", "O")) {
    flat <- as.character(unlist(py_to_r(values$ravel()$tolist())))
  } else if (kind == "V") {
    stop("R has no such type")
  } else {
    numbers <- values$astype(if (kind == "c") "complex128" else "float64")
    same <- numpy$array_equal(numbers$astype(values$dtype), values, kind %in% c("c", "f"))
    if (!py_to_r(same)) stop("integers beyond 2^53 are no numbers of R")
    bytes <- py_to_r(python$bytearray(numbers$tobytes()))
    flat <- readBin(bytes, if (kind == "c") "complex" else "double", prod(size))
    if (kind == "b") flat <- flat == 1
  }
  if (length(size) == 0) flat else aperm(array(flat, rev(size)))
}
"""
_R_FRAME = (
    """\
library(reticulate)
use_python(Sys.which("python"), required = TRUE)
arguments <- commandArgs(TRUE)
job <- import("json")$loads(arguments[1])
icechunk <- import("icechunk", convert = FALSE)
numpy <- import("numpy", convert = FALSE)
zarr <- import("zarr", convert = FALSE)
python <- import_builtins(convert = FALSE)
access <- setNames(list(icechunk$credentials$LocalFileSystemAccess), job$prefix)
storage <- icechunk$local_filesystem_storage(job$repo)
repo <- icechunk$Repository$open(storage, authorize_virtual_chunk_access = access)
store <- repo$readonly_session("main")$store
"""
    + IN_R
    + """
py_run_string("
import pickle
import numpy as np
found = {}
TYPES = {'double': '<f8', 'complex': '<c16', 'logical': '<i4'}
def add(name, size, kind, flat):
    if kind == 'character':
        found[name] = np.array(list(flat), object).reshape(size)
    elif kind == 'error':
        found[name] = flat
    else:
        values = np.frombuffer(bytes(flat), TYPES[kind]).reshape(size)
        found[name] = values.astype(bool) if kind == 'logical' else values
def save(path, versions):
    pickle.dump([found, versions], open(path, 'wb'))
")
main <- import_main(convert = FALSE)
for (name in job$names) {
  value <- tryCatch(read(name), error = identity)
  if (inherits(value, "error")) {
    main$add(name, list(), "error", conditionMessage(value))
  } else {
    flat <- c(if (is.null(dim(value))) value else aperm(value))
    flat <- if (is.character(flat)) as.list(flat) else writeBin(flat, raw())
    main$add(name, as.list(dim(value)), typeof(value), flat)
  }
}
r <- paste(R.version$major, R.version$minor, sep = ".")
main$save(arguments[2], list(r = r, reticulate = as.character(packageVersion("reticulate"))))
"""
)


@dataclass(frozen=True, slots=True)
class Outside:
    """A reader: what the table calls it, its packages, and its program."""

    title: str
    packages: tuple[str, ...]
    program: str
    of_export: bool = False
    in_r: bool = False

    @property
    def text(self) -> str:
        """The whole program."""
        return self.program if self.in_r else _FRAME.format(program=self.program)


OUTSIDE = (
    Outside(
        "zarrs {zarrs}, as the pipeline of zarr-python over icechunk",
        ("icechunk==2.3.0", "zarr==3.4.2", "zarrs==0.2.3"),
        _ICECHUNK
        + """
from importlib.metadata import version
zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True})
def read(name): return zarr.open_array(store, path=name, mode="r")[...]
def versions(): return {"zarrs": version("zarrs")}
""",
    ),
    Outside(
        "xarray-beam {beam}",
        ("xarray-beam==0.11.5", "xarray==2026.9.0", "icechunk==2.3.0", "zarr==3.4.2"),
        _ICECHUNK
        + """
from importlib.metadata import version
import apache_beam as beam, xarray as xr, xarray_beam as xbeam
import glob, logging, tempfile
logging.disable(logging.ERROR)
def read(name):
    group, _, last = name.rpartition("/")
    opened = xr.open_zarr(store, group=group or None, consolidated=False, decode_cf=False, chunks={})
    ds = opened[[last]].drop_vars([c for c in opened.coords if c != last])
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline("DirectRunner") as pipeline:
            blocks = {d: max(1, n // 2) for d, n in ds.sizes.items()}
            pipeline | xbeam.DatasetToChunks(ds, blocks) | beam.Map(keep, folder)
        whole = np.empty(ds[last].shape, ds[last].dtype)
        for path in glob.glob(f"{folder}/*"):
            offsets, part = pickle.load(open(path, "rb"))
            starts = [(offsets.get(d, 0), n) for d, n in zip(ds[last].dims, part.shape)]
            whole[tuple(slice(at, at + n) for at, n in starts)] = part
    return whole
def keep(pair, folder):
    import pickle, uuid
    (key, part) = pair
    (values,) = [each.values for each in part.values()]
    pickle.dump((dict(key.offsets), values), open(f"{folder}/{uuid.uuid4()}", "wb"))
def versions(): return {"beam": version("xarray-beam")}
""",
    ),
    Outside(
        "R {r}, reticulate {reticulate} over icechunk",
        (
            *("icechunk==2.3.0", "zarr==3.4.2", "numpy==2.5.5"),
            *("zombie-imp==0.0.4", "setuptools==84.2.1"),  # this reticulate imports `imp`
        ),
        _R_FRAME,
        in_r=True,
    ),
    Outside(
        "VirtualiZarr {vz}, kerchunk's references",
        ("virtualizarr[kerchunk]==2.8.0", "zarr==3.4.2", "obstore==0.12.1"),
        """
from importlib.metadata import version
import zarr
from obstore.store import LocalStore
from obspec_utils.registry import ObjectStoreRegistry
from virtualizarr.parsers import KerchunkJSONParser
registry = ObjectStoreRegistry({"file://": LocalStore()})
def read(name):
    store = KerchunkJSONParser()(f"file://{job['refs']}/{name.replace('/', '.')}.json", registry)
    return zarr.open_array(store, path=name.rpartition("/")[2], mode="r")[...]
def versions(): return {"vz": version("virtualizarr")}
""",
        of_export=True,
    ),
    Outside(
        "GDAL {gdal}, kerchunk's references",
        ("rasterio==1.5.2",),
        """
def place(name):
    path = f"{job['refs']}/{name.replace('/', '.')}.json"
    return f'ZARR:"/vsikerchunk_json_ref/{{{path}}}"'
"""
        + _BY_RASTERIO,
        of_export=True,
    ),
    Outside(
        "GDAL {gdal}, Zarr",
        ("rasterio==1.5.2",),
        """
def place(name): return f'ZARR:"{job["zarr"]}":/{name}'
"""
        + _BY_RASTERIO,
        of_export=True,
    ),
    Outside(
        "zarrista {zarrista} (zarrs), Zarr",
        ("zarrista==0.1.0", "numpy==2.5.5"),
        """
from importlib.metadata import version
import zarrista
from zarrista.store import FilesystemStore
store = FilesystemStore(job["zarr"])
def read(name):
    return zarrista.Array.open(store, f"/{name}")[...].to_numpy()
def versions(): return {"zarrista": version("zarrista")}
""",
        of_export=True,
    ),
    Outside(
        "tensorstore {ts}, Zarr",
        ("tensorstore==0.1.86",),
        """
from importlib.metadata import version
import tensorstore
def read(name):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{job['zarr']}/{name}/"}}
    return tensorstore.open(spec, read=True).result().read().result()
def versions(): return {"ts": version("tensorstore")}
""",
        of_export=True,
    ),
)


def read(reader: Outside, job: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Return an array or a message for each name, and the title with versions."""
    program, output = folder / "program", folder / "output.pickle"
    program.write_text(reader.text)
    asked = [word for package in reader.packages for word in ("--with", package)]
    command = ["uv", "run", "-q", "--no-project", "--python", sys.version.partition(" ")[0]]
    clean = {k: v for k, v in os.environ.items() if k not in {"HDF5_PLUGIN_PATH", "PYTHONPATH"}}
    clean |= {"AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [*command, *asked, "Rscript" if reader.in_r else "python", str(program), job, str(output)],
        capture_output=True,
        text=True,
        check=False,
        env=clean,
        cwd=folder,
    )
    assert done.returncode == 0, f"{reader.title}: {done.stderr[-2000:]}"
    found, versions = pickle.loads(output.read_bytes())
    return found, reader.title.format(**versions)
