"""Every odd file, committed and read back by icevirt and by the official client, is what h5py reads."""

import numpy as np
import pytest
import zarr

from builds.support import official
from fixtures import hdf5_cases
from icevirt import Repository, local_filesystem_store
from icevirt.api.scan import scan_file
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from scanners.materialise import materialise

pytestmark = pytest.mark.ci

READABLE = {name: case for name, case in hdf5_cases.CASES.items() if not case.refused}


def read(store):
    """Read all arrays of a store by zarr; of a 0-d array zarr returns a scalar."""
    found = {}
    for name, array in zarr.open_group(store, mode="r").members(max_depth=None):
        if isinstance(array, zarr.Array):
            values = array[...]
            found[f"/{name}"] = np.asarray(
                values, array.dtype if array.dtype.kind in "SU" else None
            )
    return found


@pytest.mark.parametrize("name", READABLE)
def test_both_clients_read_what_was_scanned(name, tmp_path):
    case, folder = READABLE[name], tmp_path / "data"
    folder.mkdir()
    case.write(folder / "odd.h5")
    scanned = scan_file(folder / "odd.h5", scan_options={"drop_variables": case.drop})
    container = VirtualChunkContainer(
        f"{tmp_path.as_uri()}/", local_filesystem_store(str(tmp_path))
    )
    config = RepositoryConfig.default()
    config.set_virtual_chunk_container(container)
    repo = Repository.create(tmp_path / "repo", config=config)
    session = repo.writable_session("main")
    scanned.write_to(session)
    session.commit("odd")

    # held against h5py in test_hdf5_values
    wanted = {array.path: materialise(array) for array in scanned.arrays}
    mine = Repository.open(
        tmp_path / "repo", authorize_virtual_chunk_access={container.url_prefix: None}
    )
    for store in (
        mine.readonly_session("main").store,
        official(str(tmp_path / "repo")).readonly_session("main").store,
    ):
        found = read(store)
        assert set(found) == set(wanted)
        for path, values in wanted.items():
            assert found[path].dtype == values.dtype, path
            assert found[path].shape == values.shape, path
            if values.dtype.kind in "OTU":
                assert found[path].tolist() == values.tolist(), path
            else:
                assert found[path].tobytes() == values.tobytes(), path
