"""Tables of Delta Lake and Iceberg, read by their own libraries, name files and references.

``just lakes`` brings the libraries, which are too large for every environment of the tests.
"""

import importlib.util
import os

import numpy as np
import pyarrow as pa
import pytest

import icevirt
import icevirt.spark
from builds.support import assert_same_dataset, expected_dataset, opened, write_days

pytestmark = [pytest.mark.ci, pytest.mark.spark]


def delta(folder, table):
    """Write a table of Delta Lake, and read it."""
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(folder, table)
    return DeltaTable(folder).to_pyarrow_table()


def iceberg(folder, table):
    """Write a table of Iceberg, and read it."""
    from pyiceberg.catalog.sql import SqlCatalog

    os.makedirs(folder)
    catalog = SqlCatalog("here", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("tests")
    made = catalog.create_table("tests.rows", schema=table.schema)
    made.append(table)
    found = made.scan().to_arrow()
    catalog.close()
    return found


LAKES = {"deltalake": delta, "pyiceberg": iceberg}


@pytest.mark.parametrize("name", LAKES)
def test_a_table_of_a_lake_names_files_and_holds_references(spark, tmp_path, name):
    if importlib.util.find_spec(name) is None:
        pytest.skip("just lakes: it brings the library")
    files = write_days(tmp_path / "in", 3)
    rows = pa.table({"url": files, "size": [os.path.getsize(each) for each in files]})
    listed = LAKES[name](str(tmp_path / "files"), rows)
    repo = str(tmp_path / "repo")
    first = listed.take(np.argsort(listed["url"].to_numpy(zero_copy_only=False))[:2])
    icevirt.build(first, repo, concat_dim="time", executor="in-process")
    assert icevirt.append(listed, repo, executor="in-process").files_appended == 1
    assert_same_dataset(opened(repo), expected_dataset(files, "time"))

    frame = icevirt.spark.table(spark, repo, "references", array="/packed")
    wanted = frame.where("kind = 'virtual'").drop("manifest_id").toArrow()
    held = LAKES[name](str(tmp_path / "references"), wanted)
    session = icevirt.Repository.open(repo).readonly_session("main")
    written = icevirt.spark.write_references(
        spark.createDataFrame(held),
        tmp_path / "copy",
        arrays={"/packed": session.array("/packed").user_data},
        containers=session.config.virtual_chunk_containers.values(),
    )
    assert written.references == wanted.num_rows > 0
    values = [opened(str(each))["packed"].values for each in (repo, tmp_path / "copy")]
    assert np.array_equal(*values, equal_nan=True)
