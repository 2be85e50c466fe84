"""A Spark batch job: index an archive of NetCDF files, then compute over all of it.

Run it: `python examples/spark_batch_job.py [DIRECTORY]`, or hand it to `spark-submit`. Without an
argument it takes three months of a real ocean model from the package iris-sample-data.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import iris_sample_data
import pandas as pd
from pyspark.sql import SparkSession

import icevirt

CONCAT_DIM, VARIABLE = "time_counter", "tos"


def main(archive: Path, repo_path: Path) -> None:
    # Your own session, with your own settings; icevirt uses it as it is and does not stop it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.appName("index-archive")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )

    # Every month of this model says that it is step 0, so files follow one another by their names;
    # where files have times, leave `combine` out, and their times decide.
    report = icevirt.build(
        [archive],
        repo_path,
        concat_dim=CONCAT_DIM,
        combine_options={"combine": "nested"},
        executor=spark,
    )
    print(f"{report.files_scanned} files, {report.references.virtual} references")
    print(f"snapshot {report.snapshot_id} of {report.repo}")

    # Every task opens the same snapshot, whatever is committed meanwhile.
    repo, snapshot, prefixes = report.repo, report.snapshot_id, list(report.containers)

    def statistics(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import xarray as xr

        with xr.open_dataset(
            repo,
            engine="icevirt",
            snapshot_id=snapshot,
            authorize_virtual_chunk_access=prefixes,
        ) as dataset:
            for batch in batches:
                chosen = dataset[VARIABLE].isel({CONCAT_DIM: batch["id"].to_numpy()})
                axes = [dim for dim in chosen.dims if dim != CONCAT_DIM]
                yield pd.DataFrame(
                    {
                        "step": batch["id"],
                        "low": chosen.min(axes).to_numpy(),
                        "mean": chosen.mean(axes).to_numpy(),
                        "high": chosen.max(axes).to_numpy(),
                    }
                )

    steps = next(a.shape[0] for a in report.arrays if a.path == f"/{VARIABLE}")
    columns = "step long, low double, mean double, high double"
    spark.range(steps).mapInPandas(statistics, columns).orderBy("step").show()
    spark.stop()


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if sys.argv[1:] else Path(iris_sample_data.path) / "NEMO"
    with tempfile.TemporaryDirectory() as directory:
        main(chosen, Path(directory) / "repo")
