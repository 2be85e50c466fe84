"""Lays files into a directory which leave a mark where a program takes them for something of its own."""

MARK = "import os\nopen(os.path.join({marks!r}, f'{{__name__}}-{{os.getpid()}}'), 'w').close()\n"
PLANTING = __file__
MODULES = """
abc argparse asyncio base64 codecs collections concurrent contextlib copy csv ctypes dataclasses
datetime decimal encodings enum faulthandler functools gc gzip hashlib heapq http importlib inspect
io itertools json linecache locale logging math multiprocessing numbers operator os pathlib pickle
platform queue random re resource runpy secrets select selectors shlex shutil signal site
sitecustomize socket ssl stat string struct subprocess sys tempfile threading time token tokenize
traceback types typing urllib usercustomize uuid warnings weakref zipfile zlib zoneinfo
cftime dask fsspec google h5py hdf5plugin icevirt icevirt_scanners msgpack netCDF4 numcodecs
numpy obstore pandas psutil py4j pyarrow pyspark pytest re2 rich tomli_w typer typing_extensions xarray yaml
zarr zstandard
""".split()

PLANTED = """
import contextlib, os, pathlib, runpy, sys
from importlib.machinery import PathFinder
import icevirt

PLANTING, MARKS = sys.argv[1:3]
runpy.run_path(PLANTING)["plant"](pathlib.Path.cwd(), MARKS)

class OfDriver(PathFinder):
    # what the driver itself imports is Python's doing; its sys.path stays as it is
    def find_spec(name, path=None, target=None):
        there = [each for each in sys.path if each and each != os.getcwd()]
        return PathFinder.find_spec(name, there if path is None else path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = OfDriver
assert "" in sys.path or os.getcwd() in sys.path
LAID = {*os.listdir()}
"""
"""What a program begins with that finds its working directory clean, and lays all that into it."""


def plant(folder, marks):
    """Lay modules and configurations down that leave a mark where somebody takes them."""
    folder.mkdir(exist_ok=True)
    mark = MARK.format(marks=str(marks))
    for number, name in enumerate(MODULES):
        if number % 2 and name not in ("sitecustomize", "usercustomize"):
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(mark)
        else:
            (folder / f"{name}.py").write_text(mark)
    for name in ("spark-env.sh", "find-spark-home", "load-spark-env.sh"):
        (folder / name).write_text(f"touch {marks}/{name}\n")
    (folder / "spark-defaults.conf").write_text("spark.app.name planted\n")
    for name in ("log4j2.properties", "log4j.properties"):
        (folder / name).write_text(
            "appender.f.type=File\nappender.f.name=f\nappender.f.layout.type=PatternLayout\n"
            f"appender.f.fileName={marks}/{name}\nrootLogger.level=info\n"
            "rootLogger.appenderRef.f.ref=f\n"
        )
    # Spark takes the parent of the working directory for its home where it looks like it
    (folder.parent / "jars").mkdir()
    (folder.parent / "bin").mkdir()
    for name in ("spark-submit", "spark-class", "java", "python3"):
        script = folder.parent / "bin" / name
        script.write_text(f"#!/bin/sh\ntouch {marks}/{name}\nexit 3\n")
        script.chmod(0o755)


def place_in(folder):
    """Make a directory to work in, with an archive, and one for marks."""
    work, marks = folder / "top" / "work", folder / "marks"
    work.mkdir(parents=True)
    marks.mkdir()
    from builds.support import write_days  # which a program that plants does without

    write_days(work, 3)
    return work, marks
