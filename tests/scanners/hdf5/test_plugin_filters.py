"""Filters that libhdf5 has by plugins only: referenced where zarr undoes them, stored, or refused.

Each case is written, and read by h5py, in a process with hdf5plugin. Two processes scan it: the
parent of that one, which may load plugins, and one that may not, which plans and reads again, too.
It is read here, by zarr, which has none.
"""

import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from fixtures.hdf5_plugins import CASES
from icevirt.errors import UnsupportedError
from long_forms import cases
from scanners.materialise import materialise

pytestmark = pytest.mark.skipif(find_spec("hdf5plugin") is None, reason="no hdf5plugin")

ROOT = Path(__file__).parents[3]
WRITE = """
import os, sys
from pathlib import Path
if not (child := os.fork()):
    from fixtures.hdf5_plugins import write_all
    write_all(Path(sys.argv[1]))
    os._exit(0)
assert not os.waitpid(child, 0)[1]
assert "hdf5plugin" not in sys.modules
"""
SCAN = """
import pickle, sys
from pathlib import Path
import icevirt
from icevirt.errors import IcevirtError

def attempt(path, **options):
    try:
        return icevirt.scan_file(path, **options)
    except IcevirtError as error:
        return error

folder = Path(sys.argv[1])
found = {path.stem: attempt(path) for path in sorted(folder.glob("*.h5"))}
found |= {f"{name} whole": attempt(folder / f"{name}.h5", concat_dim="phony_dim_0") for name in WHOLE}
print(pickle.dumps(found).hex())
"""
# what a build would store whole: chunks that do not line up along the concatenated dimension
WHOLE = ("zstd_skipped_once", "zstd_then_bzip2", "blosc_f8", "bzip2_both", "lz4", "zstd_big_endian")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder; what both processes found, by whether plugins were allowed; what was read."""
    folder = tmp_path_factory.mktemp("plugins")
    scan = SCAN.replace("WHOLE", repr(WHOLE))
    read = READ.replace("AGAIN", repr(AGAIN)).replace("BOX", repr(BOX))
    read = read.replace("PLANNED", repr(PLANNED))
    with_plugins = loaded(run("-c", WRITE + scan, str(folder), allowed=True))
    without, reads, plans = map(loaded, run("-c", scan + read, str(folder)).splitlines())
    return folder, {True: with_plugins, False: without}, reads, plans


def loaded(text):
    return pickle.loads(bytes.fromhex(text))


@pytest.fixture(scope="module")
def folder(made):
    return made[0]


@pytest.fixture(scope="module")
def scans(made):
    return made[1]


def run(*arguments, allowed=False):
    env = {**os.environ, "ICEVIRT_HDF5_PLUGINS": "1" if allowed else ""}
    env.pop("HDF5_PLUGIN_PATH", None)  # netCDF4 sets it to plugins for a libhdf5 of its own
    ran = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=env, cwd=ROOT, check=False
    )
    assert not ran.returncode, ran.stderr
    return ran.stdout


def assert_same(scanned, folder, name):
    array = scanned.array("d")
    wanted = np.load(folder / f"{name}.npy")
    shown = materialise(array)
    assert shown.dtype == wanted.dtype.newbyteorder("=")
    np.testing.assert_array_equal(shown, wanted)


@pytest.mark.parametrize("name", CASES)
def test_with_plugins_every_filter_reads_as_h5py_reads_it(name, scans, folder):
    case, scanned = CASES[name], scans[True][name]
    assert_same(scanned, folder, name)
    counts = scanned.counts()
    if not case.filter and not case.stored:
        assert not counts["inline"], "zarr undoes it, so it is referenced"
    if case.stored and counts["virtual"]:
        assert counts["inline"] == case.stored


@pytest.mark.parametrize("name", CASES)
def test_without_plugins_a_filter_is_referenced_or_named(name, scans, folder):
    case, found = CASES[name], scans[False][name]
    if not case.filter:
        assert_same(found, folder, name)
        assert not found.counts()["inline"]
        return
    assert isinstance(found, UnsupportedError)
    assert found.facts["variable"] == "/d"
    assert found.facts["file"].endswith(f"/{name}.h5")
    assert found.facts["filter"].startswith(f"{case.filter} (filter ")
    assert "hdf5plugin" in found.do
    assert "ICEVIRT_HDF5_PLUGINS=1" in found.do


@pytest.mark.parametrize("name", [k for k, c in CASES.items() if not c.filter and not c.stored])
def test_a_filter_of_zarr_is_referenced_alike_with_and_without_plugins(name, scans):
    with_plugins, without = (scans[allowed][name] for allowed in (True, False))
    assert with_plugins.array("d") == without.array("d")


@pytest.mark.parametrize("name", WHOLE)
def test_values_that_a_build_stores_need_no_plugin_where_zarr_has_the_filter(name, scans, folder):
    found = {allowed: scans[allowed][f"{name} whole"] for allowed in (True, False)}
    assert_same(found[True], folder, name)
    if CASES[name].filter:
        assert isinstance(found[False], UnsupportedError)
    else:
        assert_same(found[False], folder, name)
        assert found[False].array("d").digest == found[True].array("d").digest


# -- values that are read again: stored chunks, verification ---------------------------------------

READ = """
from icevirt.errors import ScanError
from icevirt.objects.opening import open_source
from icevirt.scan.registry import oracle_for

def read(path):
    try:
        with open_source(path.as_uri()) as source:
            return oracle_for(source).read_values(source, "/d", BOX)
    except IcevirtError as error:
        return error

def plan(path):
    try:
        return icevirt.plan([str(path)], concat_dim="phony_dim_0")
    except ScanError as error:
        return error.fixes[0].first, str(error)

print(pickle.dumps({name: read(folder / f"{name}.h5") for name in AGAIN}).hex())
print(pickle.dumps({name: plan(folder / f"{name}.h5") for name in PLANNED}).hex())
"""
BOX = (slice(1, 5), slice(3, 11), slice(0, 12))
AGAIN = (
    "zstd", "zstd_both", "bzip2", "blosc_lz4_shuffle", "zstd_big_endian", "zstd_skipped_once",
    "zstd_then_shuffle", "blosc2", "lz4", "bitshuffle_zstd",
)  # fmt: skip


@pytest.mark.parametrize("name", AGAIN)
def test_values_are_read_again_without_plugins_or_the_filter_is_named(name, made):
    """Never "damaged": files are sound whatever this libhdf5 lacks."""
    folder, _, reads, _ = made
    found = reads[name]
    if isinstance(found, UnsupportedError):
        assert name in {"zstd_then_shuffle", "blosc2", "lz4", "bitshuffle_zstd"}
        assert "hdf5plugin" in found.do
        assert found.facts["variable"] == "/d"
        return
    np.testing.assert_array_equal(found, np.load(folder / f"{name}.npy")[BOX])


PLANNED = cases(["lz4", "blosc2"], "lz4")


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_says_how_to_allow_the_plugin(name, made):
    """With the command: all files need it, so there is nothing to repair or to leave out."""
    first, text = made[3][name]
    assert first == "pip install hdf5plugin && export ICEVIRT_HDF5_PLUGINS=1"
    assert f"{name} (filter " in text
    assert "damaged" not in text
