"""What is sent to executors can be imported there from an archive, and names its scanners."""

import hashlib
import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import icevirt.spark
from icevirt.execution import installation, installed
from icevirt.spark import shipping

LOOKED = """
import runpy, sys, json
sys.path.insert(0, sys.argv[1])
print(json.dumps(runpy.run_path(sys.argv[2])["look"]({}, reads_code=True)))
"""


def test_an_archive_is_to_executors_what_is_installed_on_the_driver():
    archive = shipping.archive_of_icevirt()
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOOKED, archive, installed.__file__],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ran.stdout)
    assert installed.compare(installation.expect(is_local=False), found) is None
    assert found["scanners"].keys() >= {"hdf5", "netcdf3"}


def test_an_archive_has_the_same_bytes_each_time_and_nothing_that_was_compiled():
    first = Path(shipping.archive_of_icevirt())
    digest = hashlib.sha256(first.read_bytes()).digest()
    shipping.archive_of_icevirt.cache_clear()
    second = Path(shipping.archive_of_icevirt())
    assert second != first
    assert hashlib.sha256(second.read_bytes()).digest() == digest
    with zipfile.ZipFile(second) as packed:
        names = packed.namelist()
    assert not [name for name in names if name.endswith((".pyc", ".so"))]
    assert f"icevirt-{importlib.metadata.version('icevirt')}.dist-info/METADATA" in names


def test_nothing_is_sent_in_local_mode(spark):
    shipped = icevirt.spark.ship(spark)
    assert shipped.archive is None
    assert shipped.version == icevirt.__version__


def test_importing_the_package_does_not_import_spark():
    code = "import sys, icevirt.spark; print(*{'pyspark'} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"
