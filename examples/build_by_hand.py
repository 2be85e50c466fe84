"""Build a virtual repository by hand, without Spark: one file, one commit.

Run it: `python examples/build_by_hand.py [FILE.nc]`. Without an argument it takes a month of a real
ocean model from the package iris-sample-data.
"""

import sys
import tempfile
from pathlib import Path

import iris_sample_data
import xarray as xr

import icevirt


def main(file: Path, repo_path: Path) -> None:
    # What is in the file, and where its chunks lie. Nothing is copied but small coordinates.
    scanned = icevirt.scan_file(file)
    print(scanned)

    # A repository says once which files its references may point to.
    prefix = f"{file.parent.resolve().as_uri()}/"
    config = icevirt.RepositoryConfig.default()
    store = icevirt.local_filesystem_store(str(file.parent.resolve()))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    repo = icevirt.Repository.create(icevirt.local_filesystem_storage(str(repo_path)), config)

    # No reader sees the references before the commit, and every reader sees all of them after it.
    session = repo.writable_session("main")
    scanned.write_to(session, group="/january")
    snapshot = session.commit("January, as the model wrote it")
    print("committed", snapshot)

    # A reader says which files it is willing to read.
    dataset = xr.open_dataset(
        repo_path, engine="icevirt", group="/january", authorize_virtual_chunk_access=[prefix]
    )
    print(dataset)
    if "tos" in dataset:
        print("mean sea surface temperature:", float(dataset["tos"].mean()), "degrees")


if __name__ == "__main__":
    months = Path(iris_sample_data.path) / "NEMO"
    chosen = Path(sys.argv[1]) if sys.argv[1:] else min(months.glob("*.nc"))
    with tempfile.TemporaryDirectory() as directory:
        main(chosen, Path(directory) / "repo")
