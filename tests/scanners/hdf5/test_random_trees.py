"""Random trees of groups with attributes of every type: nothing is lost and nothing is changed.

Whatever h5py writes, a scan gives each variable and each attribute as h5py reads it, or says by name
what it is not; and it says the same whether the file is read by its bytes or by libhdf5.
"""

import os
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError, UnsupportedError
from icevirt.model.attributes import restore
from icevirt.model.paths import node_name
from icevirt_scanners.hdf5 import scanner
from scanners.hdf5.random_trees import plans, write
from scanners.materialise import materialise

EXAMPLES = int(os.environ.get("ICEVIRT_RANDOM_FILES", "50"))
BOOKKEEPING = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"}


@pytest.mark.ci
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(plans(), min_size=1, max_size=5),
    st.lists(st.sampled_from(["g", "g/h", "g/h/i/j", "ü/ b", "c", "zarr.json"]), max_size=3),
    st.sampled_from(["earliest", "latest"]),
    st.booleans(),
    st.sampled_from([None, "phony_dim_0", "a", "phony_dim_1"]),
)
def test_a_random_tree_reads_as_h5py_reads_it(found, groups, libver, track_order, concat_dim):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file.h5"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write(path, groups, found, libver=libver, track_order=track_order)
        scanned = attempt(path, concat_dim)
        with mock.patch.object(scanner.RawFile, "of", return_value=None):
            by_libhdf5 = attempt(path, concat_dim)
        with h5py.File(path) as file:
            event("refused" if isinstance(scanned, IcevirtError) else "read")
            if isinstance(scanned, IcevirtError):
                assert_reported(scanned, file)
                return
            compare(scanned, file)
        if "a chunk index that cannot be read" not in str(by_libhdf5):  # libhdf5 lists it wrongly
            assert scanned == by_libhdf5


def attempt(path, concat_dim):
    try:
        return scan_file(path, concat_dim=concat_dim)
    except IcevirtError as error:
        return error


def assert_reported(error, file):
    """A refusal is of a variable that is there, and says what to do."""
    assert isinstance(error, UnsupportedError), error
    assert error.do
    assert error.facts["file"].endswith("file.h5")
    output = error.facts.get("variable") or error.facts.get("variables")
    assert output, error
    for name in [output] if isinstance(output, str) else output:
        assert name.strip("/"), error


def compare(scanned, file):
    datasets, groups = {}, {"/": file}

    def visit(name, node):
        parts = [node_name(part.encode())[0] for part in name.split("/")]
        where = "/" + "/".join(parts)
        (groups if isinstance(node, h5py.Group) else datasets)[where] = node

    file.visititems(visit)
    assert {array.path for array in scanned.arrays} == set(datasets)
    assert {group.path for group in scanned.groups} == set(groups)
    output = {}
    for finding in scanned.findings:
        output.setdefault(finding.path, []).append(finding)
    for array in scanned.arrays:
        dataset = datasets[array.path]
        assert_values(materialise(array), dataset, array)
        assert_attributes(array.attributes, dataset, output.get(array.path, []))
    for group in scanned.groups:
        assert_attributes(group.attributes, groups[group.path], output.get(group.path, []))


def assert_values(shown, dataset, array):
    wanted = dataset[...]
    if dataset.dtype.kind == "O":
        texts = np.asarray(wanted, object)
        assert shown.shape == texts.shape
        decoded = [text.decode() if isinstance(text, bytes) else text for text in texts.flat]
        assert [str(text) for text in shown.flat] == decoded
        return
    wanted = np.asarray(wanted)
    if shown.shape != wanted.shape:  # netCDF's longer unlimited axes
        assert any(limit is None for limit in dataset.maxshape)
        shown = shown[tuple(slice(n) for n in wanted.shape)]
    assert shown.shape == wanted.shape
    same(shown, wanted, array.path)


def same(shown, wanted, where):
    if wanted.dtype.names:
        assert shown.dtype.names == wanted.dtype.names
        for name in wanted.dtype.names:
            same(shown[name], wanted[name], where)
        return
    assert shown.dtype == wanted.dtype.newbyteorder("="), where
    assert shown.tobytes() == wanted.astype(shown.dtype).tobytes(), where


def assert_attributes(found, owner, findings):
    """Every attribute is there as h5py reads it, or a finding names it."""
    values = restore(found.values, found.dtypes)
    said = " ".join(finding.message for finding in findings)
    for name in owner.attrs:
        if name in BOOKKEEPING:
            continue
        if name not in values:
            output = name if name == "_FillValue" else repr(name)
            assert output in said, f"{name!r} is lost"
            continue
        wanted = owner.attrs[name]
        if repr(name) in said or name in ("_FillValue", "missing_value"):
            continue  # told of; what becomes of fill values has tests of its own
        assert_attribute(values[name], wanted, name)


def assert_attribute(shown, wanted, name):
    if isinstance(wanted, h5py.Empty):
        assert len(shown) == 0
    elif isinstance(wanted, str):
        assert shown == wanted, name
    elif isinstance(wanted, np.ndarray) and wanted.dtype.kind == "O":
        texts = list(wanted.flat)
        assert shown == (texts[0] if len(texts) == 1 else texts), name
    elif isinstance(wanted, bytes | np.bytes_):
        assert shown == wanted.decode(), name
    elif wanted.dtype.kind == "S":
        texts = [text.decode() for text in wanted.flat]
        assert shown == (texts[0] if len(texts) == 1 else texts), name
    else:
        wanted = np.asarray(wanted)
        wanted = wanted.reshape(-1)[0] if wanted.size == 1 else wanted
        shown = np.asarray(shown)
        assert shown.shape == wanted.shape, name
        assert shown.dtype == wanted.dtype.newbyteorder("=") or wanted.size == 0, name
        np.testing.assert_array_equal(shown, wanted, err_msg=name)
