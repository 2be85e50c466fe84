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


def read(store, group):
    """Read all arrays of a group by zarr; of a 0-d array zarr returns a scalar."""
    found = {}
    for name, array in zarr.open_group(store, path=group, mode="r").members(max_depth=None):
        if isinstance(array, zarr.Array):
            values = array[...]
            found[f"/{name}"] = np.asarray(
                values, array.dtype if array.dtype.kind in "SU" else None
            )
    return found


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """What was scanned of each case, and stores of both clients that have a group for each."""
    folder = tmp_path_factory.mktemp("odd")
    container = VirtualChunkContainer(f"{folder.as_uri()}/", local_filesystem_store(str(folder)))
    config = RepositoryConfig.default()
    config.set_virtual_chunk_container(container)
    repo = Repository.create(folder / "repo", config=config)
    session = repo.writable_session("main")
    session.add_group("/", b'{"zarr_format": 3, "node_type": "group"}')
    scans = {}
    for name, case in READABLE.items():
        (folder / name).mkdir()
        case.write(folder / name / "odd.h5")
        options = {"drop_variables": case.drop}
        scans[name] = scan_file(folder / name / "odd.h5", scan_options=options)
        scans[name].write_to(session, name)
    session.commit("odd")
    mine = Repository.open(
        folder / "repo", authorize_virtual_chunk_access={container.url_prefix: None}
    )
    clients = mine, official(str(folder / "repo"))
    return scans, [each.readonly_session("main").store for each in clients]


@pytest.mark.parametrize("name", READABLE)
def test_both_clients_read_what_was_scanned(name, committed):
    scans, stores = committed
    # held against h5py in test_hdf5_values
    wanted = {array.path: materialise(array) for array in scans[name].arrays}
    for store in stores:
        found = read(store, name)
        assert set(found) == set(wanted)
        for path, values in wanted.items():
            assert found[path].dtype == values.dtype, path
            assert found[path].shape == values.shape, path
            if values.dtype.kind in "OTU":
                assert found[path].tolist() == values.tolist(), path
            else:
                assert found[path].tobytes() == values.tobytes(), path
