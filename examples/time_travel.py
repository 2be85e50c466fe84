"""Open a dataset as it was: by tag, by time, by snapshot.

Run it: `python examples/time_travel.py`. It builds a repository over two months of a real ocean
model, tags it, replaces it by one over three, and opens both versions.
"""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import iris_sample_data
import xarray as xr

import icevirt


def main(repo_path: Path) -> None:
    months = sorted((Path(iris_sample_data.path) / "NEMO").glob("*.nc"))

    # every month says that it is step 0, so they follow one another in the order given
    how = {"concat_dim": "time_counter", "combine_options": {"combine": "nested"}}
    first = icevirt.build(months[:2], repo_path, commit_options={"message": "winter"}, **how)
    repo = icevirt.Repository.open(str(repo_path))
    repo.create_tag("winter-2015", snapshot_id=first.snapshot_id)
    before = datetime.now(UTC)
    icevirt.build(months, repo_path, mode="w", commit_options={"message": "and March"}, **how)

    for snapshot in repo.ancestry(branch="main"):
        print(snapshot.id, snapshot.written_at, snapshot.message)

    def steps(**version: object) -> int:
        with xr.open_dataset(
            repo_path,
            engine="icevirt",
            authorize_virtual_chunk_access=first.containers,
            **version,
        ) as dataset:
            return dataset.sizes["time_counter"]

    print("now:", steps(), "months")
    print("as tagged winter-2015:", steps(tag="winter-2015"), "months")
    print("as it was a moment ago:", steps(as_of=before), "months")
    print("as the first build left it:", steps(snapshot_id=first.snapshot_id), "months")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory) / "repo")
